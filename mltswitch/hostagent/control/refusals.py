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
    "PROTOCOL_VERSION": "does not speak TLS 1.3",
    "HANDSHAKE_FAILURE": "has no cipher in common with us",
}
"""What the peer says of us; OpenSSL puts a word before the alert's name that differs between its versions."""
_OUR_FINDINGS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.3",
    "WRONG_VERSION_NUMBER": "it does not speak TLS: it may run with --plaintext, or be no agent",
    "HTTP_REQUEST": "it speaks HTTP, not TLS: it is no agent",
    "NO_SHARED_CIPHER": "it has no cipher in common with us",
    "PACKET_LENGTH_TOO_LONG": "it does not speak TLS: it may run with --plaintext, or be no agent",
}


def refusal(error: ssl.SSLError, peer: str) -> AgentError:
    """What ends the channel to this peer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _VERIFICATION.get(error.verify_code)
        return PeerRefusedError(why or f"its certificate does not hold: {error.verify_message}", peer=peer)
    reason = getattr(error, "reason", None) or ""
    if reason in _OUR_FINDINGS:
        return PeerRefusedError(_OUR_FINDINGS[reason], peer=peer)
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
        "closed the connection while the control channel was set up: it has no room for more, or runs with "
        "--plaintext or without it where we do not; its own log may say more",
        peer=peer,
    )
