"""Whether a channel is protected, and what it may do if not."""

from dataclasses import dataclass

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.control.streams import ControlStream, PlainStream, TlsStream
from mltswitch.hostagent.control.tls import TlsIdentity


@dataclass(frozen=True, slots=True)
class Plaintext:
    """No TLS: the peer is whoever it claims to be. For loopback, and for networks that are ours alone."""

    beyond_loopback: bool = False
    """Only where the user chose it in so many words (`--plaintext`)."""


Security = TlsIdentity | Plaintext


def check_plaintext(security: Security, endpoint: Endpoint) -> None:
    """Raises UserInputError where plain text would leave the machine, and nobody has asked for that."""
    is_plain = isinstance(security, Plaintext) and not security.beyond_loopback
    if is_plain and not endpoint.ip.is_loopback:
        raise UserInputError(
            "plain text does not leave this machine",
            where=str(endpoint),
            hint="give each host its keys (mltswitch agent keys), or choose --plaintext in a laboratory",
        )


def stream_for(security: Security, remote: Endpoint, expected_peer: str | None) -> ControlStream:
    """One end of a channel; None: we accept, and the peer will say who it is."""
    if isinstance(security, Plaintext):
        return PlainStream(claimed_peer=expected_peer, address=str(remote))
    return TlsStream(security, expected_peer=expected_peer, address=str(remote))
