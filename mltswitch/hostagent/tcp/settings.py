"""How tensors travel over TCP; the defaults are what a kernel does by itself."""

from dataclasses import dataclass
from typing import Final

from mltswitch.hostagent.transport.hello import MAXIMUM_CHUNK_BYTES

MAXIMUM_STREAMS: Final = 32
"""To one peer, and from one."""
LEAST_CHUNK_BYTES: Final = 4096
DEFAULT_CHUNK_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSettings:
    """Of the transport `tcp`; raises ValueError for what cannot work."""

    streams: int = 1
    """TCP connections to each peer, spread over its addresses; each takes the next chunk when it has room."""
    congestion_control: str | None = None
    """By the kernel's name, `bbr` say; None: the kernel's default."""
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    """At most so much of a tensor goes in one piece, before a tensor of a layer farther in front; the ends
    use the lesser of both numbers."""
    unsent_bytes: int | None = None
    """What the kernel may hold that has not been sent once (TCP_NOTSENT_LOWAT): it can no longer be overtaken
    by a layer farther in front. None: as much as it takes, up to the last number of net.ipv4.tcp_wmem."""

    def __post_init__(self) -> None:
        if not 1 <= self.streams <= MAXIMUM_STREAMS:
            raise ValueError(f"streams: {self.streams}; expected 1-{MAXIMUM_STREAMS}")
        if not LEAST_CHUNK_BYTES <= self.chunk_bytes <= MAXIMUM_CHUNK_BYTES:
            raise ValueError(
                f"chunk_bytes: {self.chunk_bytes}; expected {LEAST_CHUNK_BYTES}-{MAXIMUM_CHUNK_BYTES}"
            )
        if self.unsent_bytes is not None and not 1 <= self.unsent_bytes < 1 << 31:
            raise ValueError(f"unsent_bytes: {self.unsent_bytes}; expected 1 or more, below 2³¹")
