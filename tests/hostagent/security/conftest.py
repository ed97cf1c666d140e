"""One job for all tests: making keys takes milliseconds, but many of them."""

import pytest

from mltswitch.hostagent.security.tls import TlsIdentity, load_identity
from tests.hostagent.security.jobs import Job


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Hosts `client` and `server` of one CA, and whatever else a test makes in it."""
    return Job(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="session")
def client(job: Job) -> TlsIdentity:
    return load_identity(job.credentials("client"))


@pytest.fixture(scope="session")
def server(job: Job) -> TlsIdentity:
    return load_identity(job.credentials("server"))
