"""The compiled data plane as a Python class; C handles packets, messages and deadlines, and waits for them.

Structures and constants are those of dataplane.h, where each is explained. A structure is given as a
dictionary of its fields: cffi checks names and types, what is absent is 0. A constant is `lib.MLT_…`.
"""

import os
import socket
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self
from weakref import WeakSet

from mltswitch.errors import MachineError, MltswitchError

try:
    from mltswitch.hostagent.dataplane import _dataplane
except ImportError as _error:
    raise MachineError(
        "the host agent's compiled data plane was not built",
        where="mltswitch.hostagent.dataplane",
        hint="install a C compiler (Debian: gcc libc6-dev) and run `pip install 'mltswitch[agent]'` again",
    ) from _error

lib: Final[Any] = _dataplane.lib
_ffi: Final[Any] = _dataplane.ffi

Fields = dict[str, Any]
"""Fields of a C structure of dataplane.h, by name; absent fields are 0."""


_FORCED: Final = {socket.SO_RCVBUF: 33, socket.SO_SNDBUF: 32}
"""SO_RCVBUFFORCE and SO_SNDBUFFORCE, which Python does not name: beyond the setting, with CAP_NET_ADMIN."""
_SETTINGS: Final = {socket.SO_RCVBUF: "net.core.rmem_max", socket.SO_SNDBUF: "net.core.wmem_max"}


class SocketBuffer(NamedTuple):
    """Size of one socket buffer: what was requested, and what the kernel granted."""

    setting: str
    """Name of the kernel setting (sysctl) that limits the buffer."""
    granted_bytes: int
    wanted_bytes: int

    @property
    def what(self) -> str:
        """Text for warnings and the doctor: the size that the kernel granted, and the size requested."""
        return f"sockets get {self.granted_bytes:,} bytes of buffer, {self.wanted_bytes:,} wanted"

    @property
    def hint(self) -> str:
        """Advice on how to raise the kernel's limit of the buffer."""
        line = f"sysctl -w {self.setting}={self.wanted_bytes}"
        return f"bursts may be lost here; as root: {line}, and a line in /etc/sysctl.d"


def set_buffers(bound: socket.socket, wanted_bytes: int) -> list[SocketBuffer]:
    """Request a socket's receive and send buffers of this size, and return what the kernel grants.

    The kernel doubles what is asked for, to have room for its own bookkeeping, and tells the double
    (socket(7)): half of what it tells is granted.
    """
    granted = []
    for option, forced in _FORCED.items():
        try:
            bound.setsockopt(socket.SOL_SOCKET, forced, wanted_bytes)
        except PermissionError:
            bound.setsockopt(socket.SOL_SOCKET, option, wanted_bytes)
        size = bound.getsockopt(socket.SOL_SOCKET, option) // 2
        granted.append(SocketBuffer(_SETTINGS[option], size, wanted_bytes))
    return granted


def constant_name(kind: str, value: int) -> str:
    """Name of a value of the C enumeration `mlt_KIND`: `MLT_PATH_DEAD`, for example."""
    name: str = _ffi.string(_ffi.cast(f"enum mlt_{kind}", value))
    return name


class DataPlaneError(MltswitchError):
    """The data plane refused a call; `status` is a value of the C enumeration `mlt_status`."""

    def __init__(self, status: int, call: str) -> None:
        name = constant_name("status", status).removeprefix("MLT_")
        detail = f" ({os.strerror(_ffi.errno)})" if status == lib.MLT_SYSTEM else ""
        super().__init__(f"{name.lower().replace('_', ' ')}{detail}", where=f"data plane: {call}")
        self.status = status


def path_fields(address: str, port: int, *, socket: int = 0, weight: int = 1, frame: bytes = b"") -> Fields:
    """Fields of a C `struct mlt_path` to an IPv4 or IPv6 address; raises OSError for an invalid address."""
    return {
        "address": _socket_address(address, port),
        "socket": socket,
        "weight": weight,
        "frame": frame,
        "frame_bytes": len(frame),
    }


def _socket_address(address: str, port: int) -> bytes:
    """struct sockaddr_in or sockaddr_in6, as Linux has it."""
    is_v6 = ":" in address
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    head = int(family).to_bytes(2, "little") + port.to_bytes(2, "big") + bytes(4 if is_v6 else 0)
    return head + socket.inet_pton(family, address)


_planes: Final["WeakSet[DataPlane]"] = WeakSet()


def _after_fork() -> None:
    for plane in list(_planes):
        if plane.handle:
            lib.mlt_forked(plane.handle)


os.register_at_fork(after_in_child=_after_fork)


class DataPlane:
    """Handle of one data plane with its own thread; methods raise DataPlaneError if a call is refused."""

    def __init__(self, **options: int) -> None:
        """Of `struct mlt_options`."""
        self._memory: dict[int, Any] = {}
        """Shared with transfers that have not been released."""
        self.handle = lib.mlt_create(_ffi.new("struct mlt_options *", options))
        if not self.handle:
            raise DataPlaneError(lib.MLT_NO_MEMORY, "create")
        _planes.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.close()

    def _call(self, name: str, *arguments: Any) -> int:
        if not self.handle:  # closed; finalizers of what is freed together come in any order
            raise DataPlaneError(lib.MLT_DEAD, name)
        status: int = getattr(lib, f"mlt_{name}")(self.handle, *arguments)
        if status < 0:
            raise DataPlaneError(status, name.replace("_", " "))
        return status

    def _read(self, name: str, *arguments: Any) -> Any:
        """What the function fills in, a structure of the same name."""
        structure = _ffi.new(f"struct mlt_{name} *")
        self._call(name, *arguments, structure)
        return structure

    def close(self) -> None:
        """Stop the data plane's thread; open transfers fail, and the caller owns all memory again."""
        if self.handle:
            lib.mlt_destroy(self.handle)
        self.handle = _ffi.NULL
        self._memory.clear()

    def stop(self) -> None:
        """Stop the data plane's thread; open transfers fail, and their results can still be read."""
        self._call("stop")

    def add_socket(self, bound: socket.socket) -> tuple[int, int]:
        """Add a UDP or packet socket before `start`; returns its number and its `enum mlt_feature` bits."""
        features = _ffi.new("uint32_t *")
        return self._call("add_socket", bound.fileno(), features), int(features[0])

    def start(self) -> None:
        """Start the data plane's thread, which serves the added sockets."""
        self._call("start")

    def reserve(self) -> int:
        """Reserve and return a token for a flow that is opened later."""
        token = _ffi.new("uint64_t *")
        self._call("reserve", token)
        return int(token[0])

    def open(self, token: int, options: Fields, paths: Sequence[Fields]) -> None:
        """Open the flow of a reserved token.

        Args:
            token: a token from `reserve`.
            options: fields of a `struct mlt_flow_options`; all four of its keys and salts, or none.
            paths: the flow's paths, made by `path_fields`.
        """
        filled = _ffi.new("struct mlt_flow_options *", {**options, "has_keys": "send_key" in options})
        self._call("open", token, filled, _ffi.new("struct mlt_path[]", paths), len(paths))

    def close_flow(self, token: int) -> None:
        """Close a flow; its open transfers fail with `MLT_FLOW_CLOSED`."""
        self._call("close", token)

    def set_weights(self, token: int, weights: Sequence[int]) -> None:
        """Set the shares in which a flow's packets are divided among its paths; 0: a path is not used."""
        self._call("set_weights", token, list(weights), len(weights))

    def set_rate(self, token: int, options: Fields) -> None:
        """Change the rate cap, thresholds or controller of an open flow."""
        self._call("set_rate", token, _ffi.new("struct mlt_rate_options *", options))

    def flow_statistics(self, token: int) -> Any:
        """Statistics of a flow, as a C `struct mlt_flow_statistics`."""
        return self._read("flow_statistics", token)

    def counters(self) -> Any:
        """Counters of the whole data plane, as a C `struct mlt_counters`."""
        return self._read("counters")

    def port(self) -> Any:
        """Use of the receiving port, as a C `struct mlt_port`."""
        return self._read("port")

    def set_share(self, share: float) -> None:
        """Limit the grants to senders to this share of the port, above 0 to 1."""
        self._call("set_share", share)

    def send_message(self, token: int, message: bytes) -> bool:
        """Send a small message, reliably and in order; False if the peer has too many unread messages."""
        try:
            self._call("send_message", token, message, len(message))
        except DataPlaneError as error:
            if error.status != lib.MLT_FULL:
                raise
            return False
        return True

    def take_message(self, token: int) -> bytes | None:
        """The peer's next message; None if there is none."""
        buffer = _ffi.new("uint8_t[]", lib.MLT_MOST_USER_BYTES)
        length = self._call("take_message", token, buffer, len(buffer))
        return bytes(_ffi.buffer(buffer, length)) if length else None

    def post_sends(self, sends: Sequence[Fields]) -> list[int]:
        """Post sends, all of which begin, or none; returns the numbers of the transfers.

        Args:
            sends: fields of a `struct mlt_send` each; `elements`: contiguous buffer, `important`: bytes.
        """
        table = [{**send, "elements": _ffi.from_buffer(send["elements"])} for send in sends]
        for entry in table:
            if "important" in entry:
                entry["important"] = _ffi.from_buffer("uint8_t[]", entry["important"])
        return self._posted("send", table)

    def post_receives(self, receives: Sequence[Fields]) -> list[int]:
        """Post receives, all of which begin, or none; returns the numbers of the transfers.

        Args:
            receives: each the fields of a `struct mlt_receive`; `elements` is a contiguous writable buffer.
        """
        table = [
            {**receive, "elements": _ffi.from_buffer(receive["elements"], require_writable=True)}
            for receive in receives
        ]
        return self._posted("receive", table)

    def _posted(self, kind: str, table: list[Fields]) -> list[int]:
        transfers = _ffi.new("uint64_t[]", len(table))
        self._call(f"post_{kind}s", _ffi.new(f"struct mlt_{kind}[]", table), len(table), transfers)
        numbers = list(transfers)
        self._memory.update(zip(numbers, (entry["elements"] for entry in table), strict=True))
        return numbers

    def wait(self, transfer: int, timeout_ns: int = -1) -> Any:
        """Wait for a transfer; returns its `struct mlt_result`; None after the timeout (below 0: never)."""
        return self.result(transfer) if self.is_done(transfer, timeout_ns) else None

    def is_done(self, transfer: int, timeout_ns: int) -> bool:
        """Wait, without holding the GIL, until a transfer has ended; False after the timeout."""
        return not self._call("wait", transfer, timeout_ns, _ffi.NULL)

    def result(self, transfer: int) -> Any:
        """A transfer's `struct mlt_result` as it is now, also while the transfer is open."""
        return self._read("result", transfer)

    @staticmethod
    def arrived(result: Any) -> bytes:
        """A result's bitmap, to be read before the transfer is released: 1 for a packet that arrived."""
        return bytes(_ffi.buffer(result.arrived, (result.packets + 7) // 8))

    @staticmethod
    def text(result: Any) -> str:
        """The reason in a failed transfer's result, including what the peer said."""
        return str(_ffi.string(result.text).decode("ascii", "replace"))

    def notify(self, transfer: int) -> bool:
        """Request an event DONE at the end of a transfer; True, and no event, if it has ended already."""
        return not self._call("notify", transfer)

    def set_tos(self, transfer: int, important: int, unimportant: int) -> None:
        """Set the DSCP/ECN bytes of a send's further packets; does nothing once the send has ended."""
        self._call("set_tos", transfer, important, unimportant)

    def finish(self, transfer: int) -> None:
        """Complete a receive with what has arrived."""
        self._call("finish", transfer)

    def cancel(self, transfer: int, text: str = "cancelled") -> None:
        """Fail a transfer, here and at the peer, for the reason in `text`."""
        self._call("cancel", transfer, text.encode("ascii", "replace"))

    def release(self, transfer: int) -> None:
        """Forget a transfer that has ended."""
        self._call("release", transfer)
        self._memory.pop(transfer, None)

    @property
    def event_descriptor(self) -> int:
        """File descriptor that is readable while the data plane has events."""
        return self._call("event_descriptor")

    def next_event(self) -> Any:
        """The data plane's next `struct mlt_event`; None if there is none."""
        event = _ffi.new("struct mlt_event *")
        return event if self._call("next_event", event) else None
