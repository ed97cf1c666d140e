"""TLS 1.3 between agents: both sides have a certificate of the job's CA, and no other is accepted.

A context reads no environment (SSLKEYLOGFILE), no CA of the system, and resumes no session: each connection
proves both certificates anew. Callers check `peer_name` before they trust anything that the peer says.
"""

import os
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.endpoint import host_name_problem
from mltswitch.hostagent.errors import AgentError, PeerRefusedError

AUTHORITY_FILE: Final = "ca.pem"
"""Name of the file with the CA's certificate in each host's folder."""
CERTIFICATE_FILE: Final = "certificate.pem"
KEY_FILE: Final = "key.pem"
_FINDINGS: Final = {
    9: "its certificate is not valid yet: this host's clock or that of whoever signed it is wrong",
    10: "its certificate has expired, or this host's clock is wrong",
    **dict.fromkeys((7, 18, 19, 20, 21), "its certificate is not signed by the job's CA"),
    26: "its certificate is for another purpose",
    62: "its certificate names another host",
}
"""What is wrong with the certificate that we were shown, by OpenSSL's codes (x509_vfy.h)."""
_EXPECTED: Final = "PEM: a CA's certificate, the host's, and the key to it without passphrase"
_NO_TLS: Final = (
    "it does not speak TLS: no agent, or without keys; give both ends keys of one job, or neither"
)
_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    **dict.fromkeys(("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"), _NO_TLS),
    "ALERT_CERTIFICATE_EXPIRED": "finds our certificate expired, or its clock is wrong",
    "ALERT_UNKNOWN_CA": "does not know the CA of our certificate: we have keys of different jobs",
    "ALERT_BAD_CERTIFICATE": "does not accept our certificate: one of the two clocks may be wrong",
    "ALERT_UNSUPPORTED_CERTIFICATE": "finds our certificate made for another purpose",
    "ALERT_CERTIFICATE_REQUIRED": "wants a certificate, and we have shown none",
}
"""What OpenSSL finds, and what the peer's alerts say of us (RFC 8446, section 6)."""


class _AcceptedTls(ssl.SSLObject):
    """The accepting end, whose peer hears why a handshake has failed.

    asyncio throws away what OpenSSL has to say then. So the handshake seems to succeed, the alert is sent,
    and the connection ends: nothing can be read or written, and `peer_name` raises the reason.
    """

    failure: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLWantReadError:
            raise
        except ssl.SSLError as error:
            self.failure = error

    def getpeercert(self, binary_form: bool = False) -> Any:
        return None if self.failure else super().getpeercert(binary_form)

    def read(self, *arguments: Any) -> Any:
        return b"" if self.failure else super().read(*arguments)

    def unwrap(self) -> None:
        if not self.failure:
            super().unwrap()


class _AcceptingContext(ssl.SSLContext):
    sslobject_class = _AcceptedTls


@dataclass(frozen=True, slots=True, eq=False)
class TlsIdentity:
    """TLS identity of this host: its name, and contexts with its certificate and the job's CA."""

    name: str
    expires: datetime
    """When this host's certificate expires: no new connections after that; open ones stay."""
    client: ssl.SSLContext
    server: ssl.SSLContext


def peer_name(tls: ssl.SSLObject, *, is_client: bool) -> str:
    """The name that the peer has proved by its certificate; `is_client` says which side of TLS the peer is.

    Raises PeerRefusedError: the handshake failed, or the certificate is not for exactly one host, or not for
    this side of TLS; OpenSSL accepts one that does not say what it is for.
    """
    from mltswitch.hostagent.security.certificates import is_for_tls

    label = tls.server_hostname or ""
    failure = getattr(tls, "failure", None)
    if failure is not None:
        raise refusal(failure, label)
    alternatives: Any = (tls.getpeercert() or {}).get("subjectAltName", ())
    names: list[str] = [value for kind, value in alternatives if kind == "DNS"]
    if len(names) != 1 or host_name_problem(names[0]):
        raise PeerRefusedError("its certificate names not exactly one host", peer=label)
    if not is_for_tls(tls.getpeercert(binary_form=True) or b"", client=is_client):
        side = "client" if is_client else "server"
        raise PeerRefusedError(f"its certificate has no extended key usage for a TLS {side}", peer=label)
    return names[0]


def refusal(error: ssl.SSLError, peer: str) -> AgentError:
    """The error for a failed handshake: one line that says which side refuses the other, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _FINDINGS.get(error.verify_code, f"its certificate does not hold: {error.verify_message}")
        return PeerRefusedError(why, peer=peer)
    reason = getattr(error, "reason", None) or "unknown error"
    reason = reason[max(reason.find("ALERT_"), 0) :]  # before it stands a word that differs between versions
    why = f"the TLS connection fails: {reason.replace('_', ' ').lower()}"
    return PeerRefusedError(_REASONS.get(reason, why), peer=peer)


def load_identity(folder: Path) -> TlsIdentity:
    """Read a host's keys from its folder; raises UserInputError if no peer would accept them."""
    client = _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), folder)
    server = _loaded(_AcceptingContext(ssl.PROTOCOL_TLS_SERVER), folder)
    server.num_tickets = 0
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        client.check_hostname = False  # the name is what we are here to learn
        connecting = client.wrap_bio(to_client, to_server)
        for end in (connecting, accepting, connecting, accepting):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
        name = peer_name(accepting, is_client=True)
        peer_name(connecting, is_client=False)
    except (ssl.SSLError, AgentError) as problem:
        error = refusal(problem, "") if isinstance(problem, ssl.SSLError) else problem
        what = error.what.removeprefix("its certificate ").removeprefix("it ")
        hint = "`mltswitch agent keys` makes new ones"
        raise UserInputError(what, where=str(folder / CERTIFICATE_FILE), hint=hint) from None
    finally:
        client.check_hostname = True
    ends = ssl.cert_time_to_seconds(str((accepting.getpeercert() or {})["notAfter"]))
    return TlsIdentity(name, datetime.fromtimestamp(ends, UTC), client, server)


def _loaded(context: ssl.SSLContext, folder: Path) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    with opened_key(folder / KEY_FILE) as key:  # by descriptor: what is loaded is what was checked
        file = folder / AUTHORITY_FILE
        try:
            context.load_verify_locations(file)
            file = folder / CERTIFICATE_FILE
            context.load_cert_chain(file, f"/proc/self/fd/{key}", "")  # without password OpenSSL asks for one
        except (OSError, ValueError) as error:  # SSLError is an OSError
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            what = f"cannot be used ({why.replace('_', ' ').lower()})"
            raise UserInputError(what, where=str(file), expected=_EXPECTED) from None
    return context


@contextmanager
def opened_key(path: Path) -> Iterator[int]:
    """A file descriptor of a key's file; raises UserInputError if others than its owner may read it."""
    try:
        # a pipe without a writer must not block the opening
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        hint = "`mltswitch agent keys` makes a folder of keys for each host"
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from None
    try:
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode):
            raise UserInputError("is no regular file", where=str(path))
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            what = f"others than its owner may use this key (mode {mode:04o})"
            hint = f"`chmod 600 {path}`; if somebody could read it, make a new one"
            raise UserInputError(what, where=str(path), hint=hint)
        if status.st_uid not in {0, os.geteuid()}:
            raise UserInputError(f"this key belongs to another user ({status.st_uid})", where=str(path))
        yield descriptor
    finally:
        os.close(descriptor)
