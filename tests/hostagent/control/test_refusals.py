"""Who must not get in, and what both ends are told: over real sockets, and in memory."""

import queue
import secrets
import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.credentials import Credentials
from mltswitch.hostagent.control.refusals import refusal
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.streams import MAXIMUM_HANDSHAKE_BYTES, PlainStream, TlsStream
from mltswitch.hostagent.control.tls import TlsIdentity
from mltswitch.hostagent.doctor.messages import PREAMBLE
from mltswitch.hostagent.errors import AgentError, PeerRefusedError, PeerUnreachableError
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerLost
from mltswitch.hostagent.transport.messages import Hello, encode_message
from mltswitch.hostagent.transport.rate import RateSettings
from tests.hostagent.control.peers import (
    DAY,
    LOOPBACK,
    NOW,
    PATIENCE_SECONDS,
    Job,
    all_ended,
    connected,
    drive,
    listening,
    new_authority,
    unproved,
)


def signed_by_hand(job: Job, names: list[str], purposes: list[x509.ObjectIdentifier]) -> Credentials:
    """A certificate of the job's CA as `agent keys` would never make it."""
    authority = x509.load_pem_x509_certificate(job.authority.certificate_pem.encode())
    signer = serialization.load_pem_private_key(job.authority.key_pem.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if names:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        certificate = certificate.add_extension(alternatives, critical=False)
    folder = job.root / secrets.token_hex(8)
    folder.mkdir()
    return job.stored(
        folder,
        job.authority.certificate_pem,
        certificate.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


CLIENT_AUTH, SERVER_AUTH = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
BOTH = [CLIENT_AUTH, SERVER_AUTH]


def expired(job: Job, name: str) -> TlsIdentity:
    keys = job.credentials(name, since=NOW - 40 * DAY)
    return unproved(keys, keys.authority)


def early(job: Job, name: str) -> TlsIdentity:
    keys = job.credentials(name, since=NOW + timedelta(hours=1))
    return unproved(keys, keys.authority)


def foreign(job: Job, name: str) -> TlsIdentity:
    """Of another job; it believes whom we believe, else it would be the one to refuse."""
    keys = job.credentials(name, signer=new_authority())
    return unproved(keys, keys.authority)


def another_job(job: Job, name: str) -> TlsIdentity:
    other = new_authority()
    keys = job.credentials(name, signer=other, believed=other)
    return unproved(keys, keys.authority)


def naked(job: Job, name: str) -> TlsIdentity:
    return unproved(None, job.credentials(name).authority)


def old_version(job: Job, name: str) -> TlsIdentity:
    keys = job.credentials(name)
    return unproved(keys, keys.authority, ssl.TLSVersion.TLSv1_2)


def for_half(job: Job, name: str) -> TlsIdentity:
    keys = signed_by_hand(job, [name], [SERVER_AUTH if name == "client" else CLIENT_AUTH])
    return unproved(keys, keys.authority)


def nameless(job: Job, name: str) -> TlsIdentity:
    keys = signed_by_hand(job, [], BOTH)
    return unproved(keys, keys.authority)


def two_names(job: Job, name: str) -> TlsIdentity:
    keys = signed_by_hand(job, [name, "another"], BOTH)
    return unproved(keys, keys.authority)


Keys = Callable[[Job, str], TlsIdentity]


@pytest.mark.parametrize(
    ("keys", "at_server", "at_client"),
    [
        (expired, "its certificate has expired", "finds our certificate expired"),
        (early, "its certificate is not valid yet", "does not accept our certificate"),
        (foreign, "is not signed by the job's CA", "keys of different jobs"),
        (another_job, "keys of different jobs", "is not signed by the job's CA"),
        (naked, "it shows no certificate", "wants a certificate, and we have shown none"),
        (old_version, "it does not speak TLS 1.3", "does not speak TLS 1.3"),
        (for_half, "its certificate is for another purpose", "made for another purpose"),
        (nameless, "its certificate names not exactly one host", "does not accept the host name in our"),
        (two_names, "its certificate names not exactly one host", "does not accept the host name in our"),
    ],
)
def test_a_client_with_bad_keys(
    job: Job, server: TlsIdentity, keys: Keys, at_server: str, at_client: str
) -> None:
    """It learns why before it has said anything, and the server hears nothing of it."""
    near, far = connected(listening(server), keys(job, "client"))
    near.send(b"secret")
    told = drive((near, far), all_ended)
    assert at_client in str(told[0].error)
    assert str(told[0].error).startswith("peer server: ")
    assert at_server in str(told[1].error)
    assert str(told[1].error).startswith("peer 127.0.0.1:")
    assert isinstance(told[1].error, PeerRefusedError)
    assert told[0].said == told[1].said == b""


@pytest.mark.parametrize(
    ("keys", "at_client", "at_server"),
    [
        (expired, "its certificate has expired", "finds our certificate expired"),
        (early, "its certificate is not valid yet", "does not accept our certificate"),
        (foreign, "is not signed by the job's CA", "keys of different jobs"),
        (another_job, "is not signed by the job's CA", "keys of different jobs"),
        (for_half, "its certificate is for another purpose", "made for another purpose"),
        (old_version, "does not speak TLS 1.3", "it does not speak TLS 1.3"),
        (two_names, "its certificate names not exactly one host", "while the control channel was set up"),
    ],
)
def test_a_server_with_bad_keys(
    job: Job, client: TlsIdentity, keys: Keys, at_client: str, at_server: str
) -> None:
    near, far = connected(listening(keys(job, "server")), client)
    near.send(b"secret")
    far.send(b"poison")
    told = drive((near, far), all_ended)
    assert at_client in str(told[0].error)
    assert isinstance(told[0].error, PeerRefusedError)
    assert at_server in str(told[1].error)
    assert told[0].said == told[1].said == b""


@pytest.mark.parametrize("name", ["impostor", "SERVER", "server.example"])
def test_the_right_ca_but_another_name(job: Job, client: TlsIdentity, name: str) -> None:
    near, far = connected(listening(job.identity(name)), client)
    near.send(b"secret")
    far.send(b"poison")
    told = drive((near, far), all_ended)
    assert "peer server: its certificate names another host" in str(told[0].error)
    assert isinstance(told[0].error, PeerRefusedError)
    assert isinstance(told[1].error, AgentError)
    assert told[0].said == told[1].said == b""


def test_one_end_in_plain_text(client: TlsIdentity, server: TlsIdentity) -> None:
    """Each end knows at once, and need not try again."""
    near, far = connected(listening(Plaintext()), client)
    told = drive((near, far), all_ended)
    assert "does not speak TLS 1.3: it may have no keys, and run in plain text" in str(told[0].error)
    assert "it speaks TLS, and we are in plain text" in str(told[1].error)
    assert isinstance(told[0].error, PeerRefusedError)
    assert isinstance(told[1].error, PeerRefusedError)
    for beginning in (HELLO, PREAMBLE):
        near, far = connected(listening(server), Plaintext())
        near.send(beginning + b"more")
        told = drive((near, far), all_ended)
        assert "it speaks TLS, and we are in plain text" in str(told[0].error)
        assert "it speaks plain text, and we have keys" in str(told[1].error)
        assert isinstance(told[0].error, PeerRefusedError)
        assert isinstance(told[1].error, PeerRefusedError)
        assert told[0].said == told[1].said == b""


def test_garbage_is_closed_without_an_answer(server: TlsIdentity) -> None:
    near, far = connected(listening(server), Plaintext())
    near.send(b"\0\0\0\x10hello, no agent here")
    told = drive((near, far), all_ended)
    assert "closed the connection while the control channel was set up" in str(told[0].error)
    assert "it does not speak TLS: it is no agent" in str(told[1].error)


@pytest.mark.parametrize(
    ("beginning", "name"), [(b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"), (b"HTTP/1.1 400 Bad Request\r\n", "HTTP")]
)
def test_who_listens_there_is_named(client: TlsIdentity, beginning: bytes, name: str) -> None:
    secured = TlsStream(client, expected_peer="server", address="a")
    secured.received(beginning)
    assert str(secured.ended) == f"peer server: it speaks {name}, not TLS: it is no agent"
    plain = PlainStream(claimed_peer="server", address="a")
    assert plain.received(beginning) == b""
    assert str(plain.ended) == f"peer server: it speaks {name}: it is no agent"


def test_plain_text_says_nothing_to_a_stranger_that_says_nothing() -> None:
    stream = PlainStream(claimed_peer=None, address="10.0.0.1:2")
    stream.send(b"early")
    stream.received_end()
    assert (stream.has_output, stream.to_send()) == (False, b"")


def test_both_ends_of_a_certificate_that_expired_meanwhile(job: Job) -> None:
    """An agent refuses to start with one; this one has run for longer than it holds."""
    old, known = expired(job, "old"), job.identity("known")
    recorder = Recorder()
    listener = AgentSettings(
        name="known",
        addresses=("127.0.0.1",),
        security=known,
        rate=RATE,
        control_dscp=40,
        listen=LOOPBACK,
        data_port=0,
        observers=(recorder,),
    )
    connecting = replace(listener, name="old", security=old, listen=None, observers=())
    with Agent(listener) as there, Agent(connecting) as here:
        assert there.listening_at is not None
        with pytest.raises(PeerRefusedError, match="finds our certificate expired"):
            here.connect("known", there.listening_at, PATIENCE_SECONDS)
        lost = recorder.wait()
    assert lost.kind == "peer_refused"
    assert lost.reason == "its certificate has expired, or this host's clock is wrong"
    assert lost.peer.startswith("127.0.0.1:")


HELLO = encode_message(Hello(b'{"versions": [1]}'))
RATE = RateSettings.for_network(10e9, queue_bytes=0, noise_ns=10**9)
HTTP = b"GET / HTTP/1.1\r\nHost: host1\r\n\r\n"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(min_size=1, max_size=4000) | st.just(HTTP), is_server=st.booleans())
def test_garbage_is_refused_or_waited_for(
    client: TlsIdentity, server: TlsIdentity, garbage: bytes, is_server: bool
) -> None:
    """Parse or one AgentError; never open, never a byte let through."""
    stream = (
        TlsStream(server, expected_peer=None, address="a")
        if is_server
        else TlsStream(client, expected_peer="server", address="b")
    )
    for byte in range(0, len(garbage), 100):
        assert stream.received(garbage[byte : byte + 100]) == b""
    assert not stream.is_open
    assert not stream.is_authenticated
    assert stream.ended is None or isinstance(stream.ended, PeerRefusedError)


def test_http_is_named(server: TlsIdentity) -> None:
    stream = TlsStream(server, expected_peer=None, address="10.0.0.1:2")
    stream.received(HTTP)
    assert str(stream.ended) == "peer 10.0.0.1:2: it speaks HTTP, not TLS: it is no agent"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flight=st.integers(0, 3), place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_a_flipped_bit_anywhere_opens_nothing_or_changes_nothing(
    client: TlsIdentity, server: TlsIdentity, flight: int, place: float, mask: int
) -> None:
    """In one flight of each handshake, or in what is said after it."""
    near = TlsStream(client, expected_peer="server", address="a")
    far = TlsStream(server, expected_peer=None, address="b")
    near.send(b"from the client")
    far.send(b"from the server")
    ends = [near, far]
    heard = [b"", b""]
    for turn in range(6):
        data = bytearray(ends[turn % 2].to_send())
        if turn == flight and data:
            data[int(place * len(data))] ^= mask
        heard[(turn + 1) % 2] += ends[(turn + 1) % 2].received(bytes(data))
    assert b"from the server".startswith(heard[0])
    assert b"from the client".startswith(heard[1])
    for end in ends:
        assert end.ended is None or isinstance(end.ended, AgentError)


def test_a_handshake_that_does_not_end(server: TlsIdentity) -> None:
    """Without a limit, a stranger's bytes would be taken in until the deadline."""
    stream = TlsStream(server, expected_peer=None, address="10.0.0.1:2")
    stream._handshake_bytes = MAXIMUM_HANDSHAKE_BYTES
    stream.received(b"\x16")
    assert str(stream.ended) == "peer 10.0.0.1:2: its TLS handshake does not end"


def test_a_peer_that_closes_in_the_middle_of_a_record(client: TlsIdentity, server: TlsIdentity) -> None:
    near = TlsStream(client, expected_peer="server", address="a")
    far = TlsStream(server, expected_peer=None, address="b")
    while near.has_output or far.has_output:
        far.received(near.to_send())
        near.received(far.to_send())
    near.send(b"whole")
    near.send(b"cut off")
    data = near.to_send()
    assert far.received(data[:-3]) == b"whole"
    far.received_end()
    assert isinstance(far.ended, PeerUnreachableError)
    assert str(far.ended) == "peer client: closed the control channel without a word"


@pytest.mark.parametrize("beginning", [b"\x16\x03\x01", b"\x16\x03"])
def test_plain_text_sees_tls_however_it_is_cut(beginning: bytes) -> None:
    for cut in range(len(beginning)):
        stream = PlainStream(claimed_peer=None, address="10.0.0.1:2")
        stream.received(beginning[:cut])
        assert stream.received(beginning[cut:] + b"more") == b""
        assert isinstance(stream.ended, PeerRefusedError)
    stream = PlainStream(claimed_peer=None, address="10.0.0.1:2")
    assert stream.received(b"\x16\x04\x03") == b"\x16\x04\x03"
    assert stream.received(b"\x16\x03") == b"\x16\x03"
    assert stream.ended is None


def test_an_error_that_openssl_may_have_tomorrow() -> None:
    error = ssl.SSLError(1, "something")
    assert "what it sends is not the TLS that we expect" in str(refusal(error, "host1"))


class Recorder:
    """Keeps the first peer that was lost."""

    def __init__(self) -> None:
        self._lost: queue.SimpleQueue[PeerLost] = queue.SimpleQueue()

    def observe(self, event: AgentEvent) -> None:
        if isinstance(event, PeerLost):
            self._lost.put(event)

    def wait(self) -> PeerLost:
        return self._lost.get(timeout=PATIENCE_SECONDS)


def test_keys_are_in_no_error_and_no_representation(job: Job, server: TlsIdentity, tmp_path: Path) -> None:
    keys = job.credentials("host1")
    secret = keys.key.read_text().splitlines()[1]
    near, far = connected(listening(server), expired(job, "client"))
    told = drive((near, far), all_ended)
    for shown in (repr(keys), repr(server), str(told), repr(job.authority), str(told[0].error)):
        assert secret not in shown
        assert "PRIVATE" not in shown
