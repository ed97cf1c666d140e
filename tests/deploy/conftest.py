"""Fixtures: a real sshd for the whole run, and a target whose configuration is a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.doubles import FileTarget
from tests.deploy.sshd import Sshd, running_sshd, sshd_program


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if sshd_program() is None:
        pytest.skip("sshd is not installed (Debian: openssh-server)")
    with running_sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of whoever runs the tests opens nothing here."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileTarget:
    """The only platform that `prepare` knows in this test."""
    made = FileTarget(tmp_path / "switches")
    made.folder.mkdir()
    monkeypatch.setattr("mltswitch.deploy.prepare.target_for", lambda platform, where="": made)
    return made
