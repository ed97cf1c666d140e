"""Decisions about a new connection, without I/O: what two agents agree on, and who may call whom."""

from collections.abc import Mapping
from typing import Final

from mltswitch.hostagent.endpoint import host_name_problem
from mltswitch.hostagent.errors import AgentError, PeerBusyError, PeerRefusedError, ProtocolViolationError
from mltswitch.hostagent.protocol.frames import ChannelOffer, Frame, Goodbye, Hello, text
from mltswitch.version import __version__

VERSIONS: Final = (2,)
CAPABILITIES: Final = ("channels", "messages", "completion-policy", "last-bitmap")


class CrossedCallError(AgentError):
    """Our call to a peer is given up because the peer's simultaneous call to us goes on."""


_CODES: Final[dict[type[AgentError], str]] = {
    CrossedCallError: "crossed",
    PeerBusyError: "busy",
    PeerRefusedError: "refused",
    ProtocolViolationError: "protocol",
}
"""Why a connection ends, for the peer's program; the first that fits, for who is busy also refuses."""


def hello(name: str, channels: Mapping[str, ChannelOffer]) -> Hello:
    """The HELLO that this agent sends."""
    return Hello(
        versions=VERSIONS,
        name=name,
        software=f"mltswitch {__version__}",
        capabilities=CAPABILITIES,
        channels=dict(channels),
    )


def checked_hello(frame: Frame | None, *, own_name: str, certified: str | None, expected: str = "") -> Hello:
    """The peer's HELLO, if its version and names are acceptable.

    Args:
        frame: the first frame of the peer.
        own_name: name of this agent.
        certified: the name in the peer's certificate; None without TLS.
        expected: name of the peer that this agent called; empty if the peer called.

    Raises PeerRefusedError, or what the peer's GOODBYE says, or ProtocolViolationError.
    """
    if isinstance(frame, Goodbye):
        raise refused(frame, expected)
    if not isinstance(frame, Hello):
        raise ProtocolViolationError("its first frame is no HELLO", peer=expected)
    problem = host_name_problem(frame.name)
    if not set(frame.versions) & set(VERSIONS):
        ours, theirs = (", ".join(map(str, versions[:8])) for versions in (VERSIONS, frame.versions))
        what = f"it speaks versions {theirs} of the protocol, we speak {ours}"
    elif problem:
        what = f"its name {problem}"
    elif certified not in {None, frame.name}:
        what = f"it calls itself {frame.name}, and its certificate is {certified}'s"
    elif expected not in {"", frame.name}:
        what = f"who answers there is {frame.name}"
    elif frame.name == own_name:
        what = "it has our own name"
    else:
        return frame
    raise PeerRefusedError(what, peer=expected)


def refused(frame: Goodbye, peer: str) -> AgentError:
    """The error for a GOODBYE that the peer sent in place of HELLO."""
    reason = text(frame.reason) or "it says no reason"
    if frame.code == "crossed":
        return CrossedCallError(reason, peer=peer)
    kind = PeerBusyError if frame.code == "busy" else PeerRefusedError
    return kind(f"refuses: {reason}", peer=peer)


def goodbye_for(error: AgentError) -> Goodbye:
    """The GOODBYE that tells a peer of an error that ends its connection."""
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), "left")
    return Goodbye(code=code, reason=text(error.what))
