"""A host's own keys are proved before any peer sees them."""

import gc
import os
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.credentials import MAXIMUM_FILE_BYTES, Credentials
from mltswitch.hostagent.control.tls import load_identity
from tests.hostagent.control.peers import DAY, NOW, Job, new_authority
from tests.hostagent.control.test_refusals import BOTH, SERVER_AUTH, signed_by_hand


def test_contexts_take_tls_1_3_and_the_jobs_ca_alone(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "secrets.log"))
    identity = load_identity(job.credentials("host1"))
    for context in (identity.client, identity.server):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.verify_flags & ssl.VerifyFlags.VERIFY_X509_STRICT
        assert len(context.get_ca_certs()) == 1
        assert context.keylog_filename is None
    assert identity.client.check_hostname
    assert not identity.client.hostname_checks_common_name
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o700 | 0o010])
def test_a_key_that_others_may_use(job: Job, mode: int) -> None:
    keys = job.credentials("host1")
    keys.key.chmod(mode)
    with pytest.raises(UserInputError, match=rf"key\.pem: others than its owner .*mode 0{mode:o}.*chmod 600"):
        load_identity(keys)


@pytest.mark.root
def test_a_key_of_another_user(job: Job) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    keys = job.credentials("host1")
    os.chown(keys.key, 12345, -1)
    with pytest.raises(UserInputError, match=r"key\.pem: this key belongs to another user \(12345\)"):
        load_identity(keys)


def test_certificates_that_no_peer_would_accept(job: Job) -> None:
    other = new_authority()
    for keys, line in (
        (job.credentials("host1", since=NOW - 31 * DAY), "certificate.pem: has expired"),
        (job.credentials("host1", since=NOW + timedelta(hours=1)), "certificate.pem: is not valid yet"),
        (job.credentials("host1", signer=other), "certificate.pem: is not signed by the job's CA"),
        (job.credentials("host1", believed=other), "certificate.pem: is not signed by the job's CA"),
    ):
        with pytest.raises(UserInputError, match=line) as caught:
            load_identity(keys)
        assert "mltswitch agent keys" in str(caught.value)


def test_certificates_that_are_not_for_one_host(job: Job) -> None:
    with pytest.raises(UserInputError, match="has not exactly one host name"):
        load_identity(signed_by_hand(job, ["host1", "host2"], BOTH))
    with pytest.raises(UserInputError, match="is for another purpose"):
        load_identity(signed_by_hand(job, ["host1"], [SERVER_AUTH]))


def missing(keys: Credentials) -> None:
    keys.key.unlink()


def empty_authority(keys: Credentials) -> None:
    keys.authority.write_text("")


def nonsense(keys: Credentials) -> None:
    keys.certificate.write_text("nonsense")


def binary(keys: Credentials) -> None:
    keys.authority.write_bytes(b"\xff" * 100)


def huge(keys: Credentials) -> None:
    keys.authority.write_bytes(b"a" * (MAXIMUM_FILE_BYTES + 1))


def pipe(keys: Credentials) -> None:
    keys.key.unlink()
    os.mkfifo(keys.key, 0o600)


def folder(keys: Credentials) -> None:
    keys.certificate.unlink()
    keys.certificate.mkdir()


def swapped(keys: Credentials) -> None:
    keys.certificate.write_text(keys.authority.read_text())


def locked(keys: Credentials) -> None:
    """Without a question on the terminal."""
    key = serialization.load_pem_private_key(keys.key.read_bytes(), None)
    keys.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (missing, r"key\.pem: cannot be read: No such file.*agent keys` makes"),
        (empty_authority, r"ca\.pem: cannot be used .*expected a CA certificate, in PEM"),
        (nonsense, r"key\.pem: cannot be used .*expected a key without passphrase that belongs"),
        (binary, r"ca\.pem: is not a PEM file"),
        (huge, r"ca\.pem: larger than"),
        (pipe, r"key\.pem: is no regular file"),
        (folder, r"certificate\.pem: is no regular file"),
        (swapped, r"key\.pem: cannot be used \(key values mismatch\)"),
        (locked, r"key\.pem: cannot be used .*without passphrase"),
    ],
)
def test_files_that_cannot_be_used(job: Job, spoil: Callable[[Credentials], None], line: str) -> None:
    keys = job.credentials("host1")
    spoil(keys)
    with pytest.raises(UserInputError, match=line) as caught:
        load_identity(keys)
    assert str(caught.value).count("\n") == 0


def test_no_descriptor_stays_open(job: Job) -> None:
    keys = job.credentials("host1")
    gc.collect()  # what other tests have left
    before = set(Path("/proc/self/fd").iterdir())
    load_identity(keys)
    keys.key.chmod(0o644)
    with pytest.raises(UserInputError):
        load_identity(keys)
    assert set(Path("/proc/self/fd").iterdir()) <= before
