"""The data plane without thread and sockets, for simulations and tests, which give it time and datagrams."""

from typing import Any, Final

from mltswitch.hostagent.dataplane._dataplane import ffi
from mltswitch.hostagent.dataplane.binding import DataPlane, lib

MOST_MESSAGE_BYTES: Final = 1 << 16
"""Of a burst that is handed out at once."""
_NEVER: Final = (1 << 63) - 1


class VirtualPlane(DataPlane):
    """A data plane in virtual time: the same calls with the same seed and times make the same datagrams."""

    def __init__(self, **options: int) -> None:
        """Of `struct mlt_options`; `now_ns` is where time begins."""
        super().__init__(**options)
        self._buffer = ffi.new("uint8_t[]", MOST_MESSAGE_BYTES)

    def feed(self, data: bytes, arrived_ns: int, *, segment_bytes: int = 0, tos: int = 0) -> None:
        """Take in a datagram, or several of `segment_bytes` each; `tos` is the DSCP/ECN byte of them."""
        self._call("feed", data, len(data), segment_bytes, tos, arrived_ns)

    def step(self, now_ns: int) -> None:
        """Do what is due at this time."""
        self._call("step", now_ns)

    def next_timer(self) -> int | None:
        """When `step` is due next, in ns; None: not before something is fed or posted."""
        at_ns: int = lib.mlt_next_timer(self.handle)
        return None if at_ns == _NEVER else at_ns

    def outputs(self) -> list[tuple[Any, bytes]]:
        """Bursts sent since the last call: each a `struct mlt_output`, and its bytes."""
        messages: list[tuple[Any, bytes]] = []
        while True:
            output = ffi.new("struct mlt_output *")
            length = self._call("take_output", output, self._buffer, MOST_MESSAGE_BYTES)
            if not length:
                return messages
            messages.append((output, bytes(ffi.buffer(self._buffer, length))))
