"""Who must not get in, and what both ends are told; a host's own keys are proved before a peer sees them."""

import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from mltswitch.errors import UserInputError
from mltswitch.hostagent.errors import AgentError, PeerRefusedError
from mltswitch.hostagent.security.tls import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    TlsIdentity,
    load_identity,
    peer_name,
    refusal,
)
from tests.hostagent.security.jobs import (
    CLIENT_SAYS,
    DAY,
    NOW,
    SERVER_SAYS,
    Job,
    meet,
    new_authority,
    unproved,
)

CLIENT_AUTH, SERVER_AUTH = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
ANY = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
BOTH = [CLIENT_AUTH, SERVER_AUTH]
HOUR = timedelta(hours=1)


def test_two_hosts_of_one_job(client: TlsIdentity, server: TlsIdentity) -> None:
    near, far = meet(client.client, server.server)
    assert (near.name, near.heard, near.error) == ("server", SERVER_SAYS, None)
    assert (far.name, far.heard, far.error) == ("client", CLIENT_SAYS, None)


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
    assert identity.server.num_tickets == 0
    assert list(tmp_path.iterdir()) == []


def without_certificate(job: Job) -> TlsIdentity:
    identity = unproved(job.credentials("client"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(job.credentials("client") / AUTHORITY_FILE)
    return TlsIdentity("", NOW, context, identity.server)


KEYS: dict[str, Callable[[Job, str], TlsIdentity]] = {
    "expired": lambda job, name: unproved(job.credentials(name, since=NOW - 40 * DAY)),
    "early": lambda job, name: unproved(job.credentials(name, since=NOW + HOUR)),
    # believes whom we believe, else it would be the one to refuse
    "foreign": lambda job, name: unproved(job.credentials(name, signer=new_authority())),
    "no certificate": lambda job, _: without_certificate(job),
    "old version": lambda job, name: unproved(job.credentials(name), ssl.TLSVersion.TLSv1_2),
    "not for a client": lambda job, name: unproved(job.by_hand([name], [SERVER_AUTH])),
    "not for a server": lambda job, name: unproved(job.by_hand([name], [CLIENT_AUTH])),
    "any purpose": lambda job, name: unproved(job.by_hand([name], [ANY])),
    "no purpose": lambda job, name: unproved(job.by_hand([name], [])),
    "no name": lambda job, _: unproved(job.by_hand([], BOTH)),
    "two names": lambda job, name: unproved(job.by_hand([name, "another"], BOTH)),
    "wildcard": lambda job, name: unproved(job.by_hand([f"*.{name}"], BOTH)),
}
CLOSED = None
"""The other end learns nothing but that the connection has ended."""


@pytest.mark.parametrize(
    ("keys", "at_server", "at_client"),
    [
        ("expired", "its certificate has expired", "finds our certificate expired"),
        ("early", "its certificate is not valid yet", "does not accept our certificate"),
        ("foreign", "is not signed by the job's CA", "keys of different jobs"),
        ("no certificate", "it shows no certificate", "wants a certificate, and we have shown none"),
        ("old version", "unsupported protocol", "protocol version"),
        ("not for a client", "is for another purpose", "made for another purpose"),
        ("any purpose", "is for another purpose", "made for another purpose"),
        ("no purpose", "has no extended key usage for a TLS client", CLOSED),
        ("no name", "names not exactly one host", CLOSED),
        ("two names", "names not exactly one host", CLOSED),
        ("wildcard", "names not exactly one host", CLOSED),
    ],
)
def test_a_client_with_bad_keys(
    job: Job, server: TlsIdentity, keys: str, at_server: str, at_client: str | None
) -> None:
    near, far = meet(KEYS[keys](job, "client").client, server.server)
    assert isinstance(far.error, PeerRefusedError)
    assert at_server in str(far.error)
    assert (far.name, far.heard, near.heard) == ("", b"", b"")
    if at_client is not None:
        assert isinstance(near.error, PeerRefusedError)
        assert at_client in str(near.error)


@pytest.mark.parametrize(
    ("keys", "at_client"),
    [
        ("expired", "its certificate has expired"),
        ("early", "its certificate is not valid yet"),
        ("foreign", "is not signed by the job's CA"),
        ("not for a server", "is for another purpose"),
        ("no purpose", "has no extended key usage for a TLS server"),
        ("no name", "its certificate names another host"),
        ("two names", "names not exactly one host"),
        ("wildcard", "names another host"),
    ],
)
def test_a_server_with_bad_keys(job: Job, client: TlsIdentity, keys: str, at_client: str) -> None:
    near, far = meet(client.client, KEYS[keys](job, "server").server)
    assert isinstance(near.error, PeerRefusedError)
    assert str(near.error).startswith("peer server: ")
    assert at_client in str(near.error)
    assert (near.name, near.heard, far.heard) == ("", b"", b"")


@pytest.mark.parametrize("name", ["impostor", "server.example", "xserver"])
def test_the_right_ca_but_another_name(job: Job, client: TlsIdentity, name: str) -> None:
    near, far = meet(client.client, load_identity(job.credentials(name)).server)
    assert str(near.error) == "peer server: its certificate names another host"
    assert near.heard == far.heard == b""


def test_names_are_told_as_the_certificate_has_them(job: Job, client: TlsIdentity) -> None:
    """TLS takes SERVER for server; who asks for the exact name sees the difference."""
    near, _ = meet(client.client, load_identity(job.credentials("SERVER")).server)
    assert near.name == "SERVER"


def after(identity: TlsIdentity, data: bytes, *, is_server: bool) -> AgentError | None:
    """Why an end that hears this first gives up; None: it waits for more."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = identity.server if is_server else identity.client
    tls = context.wrap_bio(incoming, outgoing, is_server, None if is_server else "server")
    incoming.write(data)
    try:
        tls.do_handshake()
        peer_name(tls, is_client=is_server)
    except ssl.SSLWantReadError:
        return None
    except ssl.SSLError as error:
        return refusal(error, "")
    except AgentError as error:
        return error
    raise AssertionError("a handshake with garbage")


@pytest.mark.parametrize("is_server", [True, False])
@pytest.mark.parametrize(
    "said",
    [b"\0\0\0\x10{}", b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n"],
)
def test_who_speaks_no_tls(client: TlsIdentity, said: bytes, is_server: bool) -> None:
    error = after(client, said + bytes(20), is_server=is_server)
    assert isinstance(error, PeerRefusedError)
    assert str(error).startswith("it does not speak TLS: no agent, or without keys")


def test_a_client_in_plain_text(server: TlsIdentity) -> None:
    near, far = meet(None, server.server)
    assert near.heard == far.heard == b""
    assert "it does not speak TLS" in str(far.error)


def test_a_handshake_that_failed_says_nothing_more(job: Job, server: TlsIdentity) -> None:
    """Not even for a program that forgets to ask who its peer is."""
    bad = KEYS["expired"](job, "client").client
    wires = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = bad.wrap_bio(wires[0], wires[1], server_side=False, server_hostname="server")
    far = server.server.wrap_bio(wires[1], wires[0], server_side=True)
    for end in (near, far, near, far):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    near.write(b"poison")
    assert far.read(100) == b""
    assert far.getpeercert() is None
    with pytest.raises(ssl.SSLError):
        far.write(b"secret")
    with pytest.raises(ssl.SSLError, match="expired"):
        near.read(100)


def test_bytes_of_the_extension_elsewhere_are_no_extension(job: Job) -> None:
    """A host may choose its key, and in part its name."""
    keys = job.by_hand(
        ["host1"], [], subject="\x06\x03\x55\x1d\x25\x04\x0c0\x0a\x06\x08+\x06\x01\x05\x05\x07\x03\x01"
    )
    assert b"\x06\x03\x55\x1d\x25" in ssl.PEM_cert_to_DER_cert((keys / CERTIFICATE_FILE).read_text())
    with pytest.raises(UserInputError, match="has no extended key usage"):
        load_identity(keys)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o710])
def test_a_key_that_others_may_use(job: Job, mode: int) -> None:
    keys = job.credentials("host1")
    (keys / KEY_FILE).chmod(mode)
    with pytest.raises(UserInputError, match=rf"key\.pem: others than its owner .*mode 0{mode:o}.*chmod 600"):
        load_identity(keys)


@pytest.mark.root
def test_a_key_of_another_user(job: Job) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    keys = job.credentials("host1")
    os.chown((keys / KEY_FILE), 12345, -1)
    with pytest.raises(UserInputError, match=r"key\.pem: this key belongs to another user \(12345\)"):
        load_identity(keys)


def test_certificates_that_no_peer_would_accept(job: Job) -> None:
    other = new_authority()
    for keys, line in (
        (job.credentials("host1", since=NOW - 31 * DAY), "has expired"),
        (job.credentials("host1", since=NOW + HOUR), "is not valid yet"),
        (job.credentials("host1", signer=other), "is not signed by the job's CA"),
        (job.credentials("host1", believed=other), "is not signed by the job's CA"),
        (job.by_hand(["host1", "host2"], BOTH), "names not exactly one host"),
        (job.by_hand(["host1"], [SERVER_AUTH]), "is for another purpose"),
        (job.by_hand(["host1"], []), "has no extended key usage for a TLS client"),
    ):
        with pytest.raises(UserInputError, match=f"certificate.pem: {line}.*mltswitch agent keys"):
            load_identity(keys)


def piped(keys: Path) -> None:
    (keys / KEY_FILE).unlink()
    os.mkfifo(keys / KEY_FILE, 0o600)


def locked(keys: Path) -> None:
    """Without a question on the terminal."""
    key = serialization.load_pem_private_key((keys / KEY_FILE).read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.PKCS8
    (keys / KEY_FILE).write_bytes(key.private_bytes(serialization.Encoding.PEM, form, secret))


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (
            lambda keys: (keys / KEY_FILE).unlink(),
            r"key\.pem: cannot be read: No such file.*agent keys` makes",
        ),
        (lambda keys: (keys / AUTHORITY_FILE).unlink(), r"ca\.pem: cannot be used \(no such file"),
        (
            lambda keys: (keys / AUTHORITY_FILE).write_text(""),
            r"ca\.pem: cannot be used .*expected PEM: a CA",
        ),
        (lambda keys: (keys / AUTHORITY_FILE).write_bytes(b"\xff" * 100), r"ca\.pem: cannot be used"),
        (
            lambda keys: (keys / CERTIFICATE_FILE).write_text("nonsense"),
            r"certificate\.pem: cannot be used .*expected PEM",
        ),
        (
            lambda keys: (keys / CERTIFICATE_FILE).write_text((keys / AUTHORITY_FILE).read_text()),
            r"certificate\.pem: cannot be used \(key values mismatch\)",
        ),
        (piped, r"key\.pem: is no regular file"),
        (locked, r"certificate\.pem: cannot be used .*without passphrase"),
    ],
)
def test_files_that_cannot_be_used(job: Job, spoil: Callable[[Path], None], line: str) -> None:
    keys = job.credentials("host1")
    spoil(keys)
    with pytest.raises(UserInputError, match=line) as caught:
        load_identity(keys)
    assert str(caught.value).count("\n") == 0


def test_keys_are_in_no_error_and_no_representation(job: Job, server: TlsIdentity) -> None:
    keys = job.credentials("host1")
    secret = (keys / KEY_FILE).read_text().splitlines()[1]
    near, far = meet(KEYS["expired"](job, "client").client, server.server)
    for shown in (repr(keys), repr(server), repr(near), repr(far), repr(job.authority), str(far.error)):
        assert secret not in shown
        assert "PRIVATE" not in shown
