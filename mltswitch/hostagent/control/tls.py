"""TLS 1.3, both sides with a certificate of the job's CA and of nobody else's.

A context reads no environment (SSLKEYLOGFILE), no CA of the system, and resumes no session: each connection
proves both certificates anew.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.credentials import Credentials, opened, read_pem
from mltswitch.hostagent.control.identity import certified_name
from mltswitch.hostagent.control.refusals import refusal
from mltswitch.hostagent.errors import AgentError

_FLIGHTS: Final = 4
"""More than a handshake between two ends in one memory takes turns."""


@dataclass(frozen=True, slots=True, eq=False)
class TlsIdentity:
    """Who this host is towards its peers, and whom it believes."""

    name: str
    """As the certificate has it; the agent goes by this name."""
    expires: datetime
    """Of the certificate: no new connection after it. Those that are open stay."""
    client: ssl.SSLContext
    server: ssl.SSLContext


def load_identity(credentials: Credentials) -> TlsIdentity:
    """Read and prove a host's keys: they are shown to ourselves as a peer would see them.

    Raises:
        UserInputError: a file is missing, others may read the key, or no peer of the job would accept it
            now: expired, not valid yet, of another CA, without exactly one name.
    """
    client = _context(ssl.PROTOCOL_TLS_CLIENT, credentials)
    server = _context(ssl.PROTOCOL_TLS_SERVER, credentials)
    server.num_tickets = 0
    certificate = _seen_by_ourselves(client, server, credentials.certificate)
    name = certified_name(certificate)
    if name is None:
        raise UserInputError("has not exactly one host name", where=str(credentials.certificate))
    return TlsIdentity(name, _expiry(certificate), client, server)


def _context(protocol: "ssl._SSLMethod", credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.hostname_checks_common_name = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    authority = read_pem(credentials.authority)
    _loaded(lambda: context.load_verify_locations(cadata=authority), credentials.authority, "CA certificate")
    with opened(credentials.certificate) as certificate, opened(credentials.key, is_private=True) as key:
        # By descriptor: what is loaded is what was checked. Without a password, OpenSSL would ask the user.
        _loaded(
            lambda: context.load_cert_chain(f"/proc/self/fd/{certificate}", f"/proc/self/fd/{key}", ""),
            credentials.key,
            "key without passphrase that belongs to the certificate beside it",
        )
    return context


def _loaded(load: Callable[[], None], path: Path, expected: str) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
        raise UserInputError(
            f"cannot be used ({reason})", where=str(path), expected=f"a {expected}, in PEM"
        ) from None


def _seen_by_ourselves(client: ssl.SSLContext, server: ssl.SSLContext, path: Path) -> dict[str, Any]:
    """Our own certificate, verified in a handshake with ourselves in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        client.check_hostname = False  # the name is what we are here to learn
        connecting = client.wrap_bio(to_client, to_server)
        for _ in range(_FLIGHTS):
            for end in (connecting, accepting):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLError as error:
        what = _as_our_own(refusal(error, ""))
        raise UserInputError(what, where=str(path), hint="`mltswitch agent keys` makes new ones") from None
    finally:
        client.check_hostname = True
    certificate = accepting.getpeercert()
    if not certificate:
        raise UserInputError("is no certificate that a peer would accept", where=str(path))
    return certificate


def _as_our_own(error: AgentError) -> str:
    return error.what.removeprefix("its certificate ").removeprefix("it ")


def _expiry(certificate: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
