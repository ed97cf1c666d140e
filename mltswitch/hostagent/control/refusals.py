"""What OpenSSL reports, as one line that says who refuses whom and who can mend it.

The names of alerts are those of RFC 8446, section 6; the verification codes those of OpenSSL's x509_vfy.h.
"""

import ssl
from typing import Final

from mltswitch.hostagent.errors import AgentError, PeerRefusedError, PeerUnreachableError

_VERIFICATION: Final = {
    9: "its certificate is not valid yet: this host's clock or that of whoever signed it is wrong",
    10: "its certificate has expired, or this host's clock is wrong",
    7: "its certificate is not signed by the job's CA",
    18: "its certificate is not signed by the job's CA",
    19: "its certificate is not signed by the job's CA",
    20: "its certificate is not signed by the job's CA",
    21: "its certificate is not signed by the job's CA",
    26: "its certificate is for another purpose",
    62: "its certificate names another host",
}
"""What is wrong with the certificate that we were shown."""
_ALERTS: Final = {
    "CERTIFICATE_EXPIRED": "finds our certificate expired, or its clock is wrong",
    "UNKNOWN_CA": "does not know the CA of our certificate: we have keys of different jobs",
    "DECRYPT_ERROR": "does not believe our certificate: we have keys of different jobs",
    "BAD_CERTIFICATE": "does not accept our certificate: it may expect another host here, or another clock",
    "UNSUPPORTED_CERTIFICATE": "finds our certificate made for another purpose",
    "CERTIFICATE_UNKNOWN": "does not accept our certificate",
    "CERTIFICATE_REVOKED": "finds our certificate revoked",
    "CERTIFICATE_REQUIRED": "wants a certificate, and we have shown none",
    "PROTOCOL_VERSION": "does not speak TLS 1.3: it may have no keys, and run in plain text",
    "HANDSHAKE_FAILURE": "has no cipher in common with us",
}
"""What the peer says of us; OpenSSL puts a word before the alert's name that differs between its versions."""
_OUR_FINDINGS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.3",
    "NO_SHARED_CIPHER": "it has no cipher in common with us",
}
_NO_TLS: Final = {"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"}

BEGINNING_BYTES: Final = 6
"""Of what a peer says first: enough to know it by."""
NO_TLS_HERE: Final = b"\x15\x03\x03\x00\x02\x02\x46"
"""A record with the fatal alert protocol_version (RFC 8446, sections 5.1 and 6): all that an end in plain
text and one with TLS can tell each other."""
TLS_HANDSHAKE: Final = b"\x16\x03"
"""How a TLS client begins (RFC 8446, section 5.1)."""
_TLS_RECORDS: Final = (TLS_HANDSHAKE, NO_TLS_HERE[:2])
"""A handshake, or an alert; nothing of ours begins so in plain text."""
_FOREIGN: Final = {
    b"SSH-": "SSH",
    b"HTTP/": "HTTP",
    b"GET ": "HTTP",
    b"HEAD ": "HTTP",
    b"POST ": "HTTP",
    b"PUT ": "HTTP",
}
"""What other servers, and clients that meant another, begin with."""
_DOCTOR: Final = b"mltdoc"
_HELLO: Final = b"\x01{"
"""Behind the length, of an agent's first message."""


def is_plain_agent(beginning: bytes) -> bool:
    """Whether an agent, or a doctor, speaks there in plain text."""
    is_hello = beginning.startswith(b"\0") and beginning[4:6] == _HELLO
    return is_hello or beginning[: len(_DOCTOR)] == _DOCTOR


def not_plain(beginning: bytes, peer: str) -> AgentError | None:
    """Why nobody who begins so is an agent in plain text; None: nothing of that is known."""
    if beginning.startswith(_TLS_RECORDS):
        return PeerRefusedError(
            "it speaks TLS, and we are in plain text: give both ends keys of one job, or neither", peer=peer
        )
    found = _foreign(beginning)
    return PeerRefusedError(f"it speaks {found}: it is no agent", peer=peer) if found else None


def _foreign(beginning: bytes) -> str | None:
    return next((name for text, name in _FOREIGN.items() if beginning.startswith(text)), None)


def _not_tls(beginning: bytes) -> str:
    if is_plain_agent(beginning):
        return "it speaks plain text, and we have keys: give both ends keys of one job, or neither"
    found = _foreign(beginning)
    if found:
        return f"it speaks {found}, not TLS: it is no agent"
    return "it does not speak TLS: it is no agent"


def refusal(error: ssl.SSLError, peer: str, beginning: bytes = b"") -> AgentError:
    """What ends the channel to this peer, who has said `beginning` first."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _VERIFICATION.get(error.verify_code)
        return PeerRefusedError(why or f"its certificate does not hold: {error.verify_message}", peer=peer)
    reason = getattr(error, "reason", None) or ""
    if reason in _OUR_FINDINGS:
        return PeerRefusedError(_OUR_FINDINGS[reason], peer=peer)
    if reason in _NO_TLS:
        return PeerRefusedError(_not_tls(beginning), peer=peer)
    _, is_alert, alert = reason.partition("ALERT_")
    if is_alert:
        shown = alert.replace("_", " ").lower()
        why = _ALERTS.get(alert, f"ends the control channel with the TLS alert '{shown}'")
        return PeerRefusedError(why, peer=peer)
    what = reason.replace("_", " ").lower() or "unknown error"
    return PeerRefusedError(f"what it sends is not the TLS that we expect ({what})", peer=peer)


def closed(peer: str, *, is_open: bool) -> AgentError:
    """The peer has closed the connection, or the network has, without a word."""
    if is_open:
        return PeerUnreachableError("closed the control channel without a word", peer=peer)
    return PeerUnreachableError(
        "closed the connection while the control channel was set up: it has no room for more, or is no "
        "agent. The other end may say more",
        peer=peer,
    )
