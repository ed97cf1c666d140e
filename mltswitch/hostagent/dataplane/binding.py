"""The compiled data plane as a Python class: packets, messages and deadlines are C's, and so is the waiting.

All structures are those of dataplane.h, where each field is explained. Memory that transfers share is kept
alive here until they are released.
"""

import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum, IntFlag
from typing import Any, Final, Self, cast
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

_ffi: Final[Any] = _dataplane.ffi
_lib: Final[Any] = _dataplane.lib

MOST_PATHS: Final[int] = _lib.MLT_MOST_PATHS
HEADER_BYTES: Final[int] = 40
"""Of the agent header (docs/wire-format.md)."""
MOST_MESSAGE_BYTES: Final[int] = _lib.MLT_MOST_USER_BYTES


class Status(IntEnum):
    """How a call, or a transfer, went: `enum mlt_status`."""

    OK = _lib.MLT_OK
    PENDING = _lib.MLT_PENDING
    INVALID = _lib.MLT_INVALID
    NO_MEMORY = _lib.MLT_NO_MEMORY
    UNKNOWN = _lib.MLT_UNKNOWN
    FULL = _lib.MLT_FULL
    BUSY = _lib.MLT_BUSY
    DEAD = _lib.MLT_DEAD
    SYSTEM = _lib.MLT_SYSTEM
    DEADLINE = _lib.MLT_DEADLINE
    CANCELLED = _lib.MLT_CANCELLED
    PEER_CANCELLED = _lib.MLT_PEER_CANCELLED
    PEER_DEADLINE = _lib.MLT_PEER_DEADLINE
    PEER_SILENT = _lib.MLT_PEER_SILENT
    FLOW_CLOSED = _lib.MLT_FLOW_CLOSED
    MISMATCH = _lib.MLT_MISMATCH
    PROTOCOL = _lib.MLT_PROTOCOL


class Importance(IntEnum):
    """Which packets are important: `enum mlt_importance`."""

    ALL = _lib.MLT_ALL_IMPORTANT
    NONE = _lib.MLT_NONE_IMPORTANT
    MAGNITUDE = _lib.MLT_BY_MAGNITUDE
    BITMAP = _lib.MLT_BY_BITMAP


class Moment(IntEnum):
    """Where a deadline counts from: `enum mlt_moment`."""

    POST = _lib.MLT_FROM_POST
    PEER_READY = _lib.MLT_FROM_PEER_READY
    FIRST_BYTE = _lib.MLT_FROM_FIRST_BYTE


class StopRule(IntEnum):
    """When a bound ends a receive: `enum mlt_stop_rule`."""

    PATIENT = _lib.MLT_PATIENT
    PAPER = _lib.MLT_PAPER


class AtHardTime(IntEnum):
    """What a receive does at its hard time: `enum mlt_at_hard_time`."""

    FAIL = _lib.MLT_FAIL
    TAKE = _lib.MLT_TAKE


class Controller(IntEnum):
    """Who decides the rate: `enum mlt_controller_kind`."""

    TIMELY = _lib.MLT_TIMELY
    EXTERNAL = _lib.MLT_EXTERNAL


class PathState(IntEnum):
    """Whether a path carries data: `enum mlt_path_state`."""

    USED = _lib.MLT_PATH_USED
    DEAD = _lib.MLT_PATH_DEAD
    GRAY = _lib.MLT_PATH_GRAY


class Feature(IntFlag):
    """What the kernel does for a socket: `enum mlt_feature`."""

    SEGMENTATION = _lib.MLT_SEGMENTATION
    COALESCING = _lib.MLT_COALESCING
    TIMESTAMPS = _lib.MLT_TIMESTAMPS


class EventKind(IntEnum):
    """What an event tells: `enum mlt_event_kind`."""

    DONE = _lib.MLT_EVENT_DONE
    PATH = _lib.MLT_EVENT_PATH
    USER = _lib.MLT_EVENT_USER
    SAMPLE = _lib.MLT_EVENT_SAMPLE
    SILENT = _lib.MLT_EVENT_SILENT
    PROTOCOL = _lib.MLT_EVENT_PROTOCOL
    SEND_ERROR = _lib.MLT_EVENT_SEND_ERROR


class DataPlaneError(MltswitchError):
    """The data plane refused a call; `status` says why."""

    def __init__(self, status: Status, call: str) -> None:
        detail = f" ({os.strerror(_ffi.errno)})" if status is Status.SYSTEM else ""
        super().__init__(f"{status.name.lower().replace('_', ' ')}{detail}", where=f"data plane: {call}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOptions:
    """One path of a flow: `struct mlt_path`."""

    address: str
    port: int
    socket: int = 0
    weight: int = 1
    frame: bytes = b""
    """Of a packet socket: all before the UDP payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateOptions:
    """How fast a flow may be: `struct mlt_rate_options`."""

    kind: Controller = Controller.TIMELY
    cap_bps: float = 0
    floor_bps: float = 0
    rate_bps: float = 0
    increase_bps: float = 0
    decrease: float = 0
    low_ns: int = 0
    high_ns: int = 0
    sample_ns: int = 0
    window_bytes: int = 0
    initial_window_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOptions:
    """What the handshake found: `struct mlt_flow_options`. Keys and salts: all four, or none."""

    peer_token: int
    send_datagram_bytes: int = 1472
    receive_datagram_bytes: int = 1472
    silence_ns: int = 0
    ack_delay_ns: int = 0
    ack_packets: int = 0
    control_tos: int = 0
    spray_random: bool = False
    send_key: bytes = field(default=b"", repr=False)
    receive_key: bytes = field(default=b"", repr=False)
    send_salt: bytes = field(default=b"", repr=False)
    receive_salt: bytes = field(default=b"", repr=False)
    rate: RateOptions = RateOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When a receive is complete: `struct mlt_policy`."""

    loss_bound: float = 0
    important_bound: float = 1
    soft_ns: int = 0
    hard_ns: int = 0
    moment: Moment = Moment.POST
    stop_rule: StopRule = StopRule.PATIENT
    at_hard_time: AtHardTime = AtHardTime.FAIL
    keep_missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A tensor to be sent: `struct mlt_send`. `elements`: any contiguous buffer."""

    flow: int
    elements: Any
    element_count: int
    element_type: int
    tensor: int
    round: int = 0
    layer: int = 0
    priority: int = 0
    burst_packets: int = 0
    importance: Importance = Importance.ALL
    important: bytes | None = None
    tos_important: int = 0
    tos_unimportant: int = 0
    deadline_ns: int = 0
    moment: Moment = Moment.POST
    seed: int = 0
    notify: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive:
    """Memory for a tensor to come: `struct mlt_receive`. `elements`: any contiguous writable buffer."""

    flow: int
    elements: Any
    element_count: int
    element_type: int
    tensor: int
    round: int = 0
    policy: Policy = Policy()
    notify: bool = False


_NUMBERS: Final[dict[type, list[str]]] = {
    kind: [
        entry.name
        for entry in fields(kind)
        if isinstance(entry.type, type) and issubclass(entry.type, int | float)
    ]
    for kind in (RateOptions, FlowOptions, Policy, Send, Receive)
}


def _assign(target: Any, source: Any) -> None:
    """Numbers of a dataclass to the fields of the same names."""
    for name in _NUMBERS[type(source)]:
        setattr(target, name, getattr(source, name))


def _socket_address(address: str, port: int) -> bytes:
    """struct sockaddr_in or sockaddr_in6, as Linux has it."""
    if ":" in address:
        family, head = socket.AF_INET6, port.to_bytes(2, "big") + bytes(4)
    else:
        family, head = socket.AF_INET, port.to_bytes(2, "big")
    packed = int(family).to_bytes(2, "little") + head + socket.inet_pton(family, address)
    return packed.ljust(_lib.MLT_ADDRESS_BYTES, b"\0")


def _checked(status: int, call: str) -> int:
    if status < 0:
        raise DataPlaneError(Status(status), call)
    return status


_planes: Final["WeakSet[DataPlane]"] = WeakSet()


def _after_fork() -> None:
    for plane in list(_planes):
        if plane.handle != _ffi.NULL:
            _lib.mlt_forked(plane.handle)


os.register_at_fork(after_in_child=_after_fork)


class DataPlane:
    """One handle. Methods raise DataPlaneError where the call is refused."""

    def __init__(self, *, seed: int = 0, most_transfers: int = 0, events: int = 0, now_ns: int = 0) -> None:
        options = {"seed": seed, "most_transfers": most_transfers, "events": events, "now_ns": now_ns}
        self.handle = _lib.mlt_create(_ffi.new("struct mlt_options *", options))
        if self.handle == _ffi.NULL:
            raise DataPlaneError(Status.NO_MEMORY, "create")
        self._memory: dict[int, Any] = {}
        """Of transfers that have not been released."""
        _planes.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread; what is open fails, and all memory is the caller's again."""
        if self.handle != _ffi.NULL:
            _lib.mlt_destroy(self.handle)
        self.handle = _ffi.NULL
        self._memory.clear()

    def stop(self) -> None:
        """Stop the thread; what is open fails, and can still be asked how it ended."""
        _checked(_lib.mlt_stop(self.handle), "stop")

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.close()

    def add_socket(self, bound: socket.socket) -> tuple[int, Feature]:
        """Number of a UDP or packet socket, and what the kernel does for it; before `start`."""
        features = _ffi.new("uint32_t *")
        number = _checked(_lib.mlt_add_socket(self.handle, bound.fileno(), features), "add socket")
        return number, Feature(features[0])

    def start(self) -> None:
        """Run in a thread of its own, by the sockets."""
        _checked(_lib.mlt_start(self.handle), "start")

    def reserve(self) -> int:
        """A token for a flow to come."""
        token = _ffi.new("uint64_t *")
        _checked(_lib.mlt_reserve(self.handle, token), "reserve")
        return cast(int, token[0])

    def open(self, token: int, options: FlowOptions, paths: Sequence[PathOptions]) -> None:
        """Open the flow of a reserved token."""
        filled = _ffi.new("struct mlt_flow_options *")
        _assign(filled, options)
        _assign(filled.rate, options.rate)
        filled.has_keys = bool(options.send_key)
        for name in ("send_key", "receive_key", "send_salt", "receive_salt") if options.send_key else ():
            setattr(filled, name, getattr(options, name))
        table = _ffi.new("struct mlt_path[]", len(paths))
        for place, path in zip(table, paths, strict=True):
            place.socket, place.weight = path.socket, path.weight
            place.address = _socket_address(path.address, path.port)
            place.frame_bytes, place.frame = len(path.frame), path.frame
        _checked(_lib.mlt_open(self.handle, token, filled, table, len(paths)), "open")

    def close_flow(self, token: int) -> None:
        """Close a flow; its open transfers fail with `FLOW_CLOSED`."""
        _checked(_lib.mlt_close(self.handle, token), "close flow")

    def set_weights(self, token: int, weights: Sequence[int]) -> None:
        """Shares of the paths; 0: not used."""
        _checked(_lib.mlt_set_weights(self.handle, token, list(weights), len(weights)), "set weights")

    def set_rate(self, token: int, options: RateOptions) -> None:
        """Change cap, thresholds or controller while the flow is open."""
        filled = _ffi.new("struct mlt_rate_options *")
        _assign(filled, options)
        _checked(_lib.mlt_set_rate(self.handle, token, filled), "set rate")

    def flow_statistics(self, token: int) -> Any:
        """A `struct mlt_flow_statistics`."""
        statistics = _ffi.new("struct mlt_flow_statistics *")
        _checked(_lib.mlt_flow_statistics(self.handle, token, statistics), "flow statistics")
        return statistics

    def counters(self) -> Any:
        """A `struct mlt_counters`."""
        counters = _ffi.new("struct mlt_counters *")
        _checked(_lib.mlt_counters(self.handle, counters), "counters")
        return counters

    def send_message(self, token: int, message: bytes) -> bool:
        """A small message, reliable and in order; False while the peer has too many to read."""
        status = _lib.mlt_send_message(self.handle, token, message, len(message))
        if status == Status.FULL:
            return False
        _checked(status, "send message")
        return True

    def take_message(self, token: int) -> bytes | None:
        """The next message of the peer, if there is one."""
        buffer = _ffi.new("uint8_t[]", MOST_MESSAGE_BYTES)
        length = _checked(_lib.mlt_take_message(self.handle, token, buffer, len(buffer)), "take message")
        return bytes(_ffi.buffer(buffer, length)) if length else None

    def post_sends(self, sends: Sequence[Send]) -> list[int]:
        """Numbers of the transfers; all of them begin, or none."""
        table, memory = _ffi.new("struct mlt_send[]", len(sends)), []
        for place, send in zip(table, sends, strict=True):
            _assign(place, send)
            place.elements = _ffi.from_buffer(send.elements)
            place.important = (
                _ffi.NULL if send.important is None else _ffi.from_buffer("uint8_t[]", send.important)
            )
            memory.append((send.elements, place.elements))
        return self._posted(_lib.mlt_post_sends, table, memory, "post sends")

    def post_receives(self, receives: Sequence[Receive]) -> list[int]:
        """Numbers of the transfers; all of them begin, or none."""
        table, memory = _ffi.new("struct mlt_receive[]", len(receives)), []
        for place, receive in zip(table, receives, strict=True):
            _assign(place, receive)
            _assign(place.policy, receive.policy)
            place.elements = _ffi.from_buffer(receive.elements, require_writable=True)
            memory.append((receive.elements, place.elements))
        return self._posted(_lib.mlt_post_receives, table, memory, "post receives")

    def _posted(self, post: Any, table: Any, memory: Iterable[object], call: str) -> list[int]:
        transfers = _ffi.new("uint64_t[]", len(table))
        _checked(post(self.handle, table, len(table), transfers), call)
        numbers = [int(number) for number in transfers]
        self._memory.update(zip(numbers, memory, strict=True))
        return numbers

    def wait(self, transfer: int, timeout_ns: int = -1) -> Any:
        """The `struct mlt_result` of a transfer once it is done; None when the time is up (below 0: none)."""
        result = _ffi.new("struct mlt_result *")
        status = _checked(_lib.mlt_wait(self.handle, transfer, timeout_ns, result), "wait")
        return None if status == Status.PENDING else result

    def is_done(self, transfer: int, timeout_ns: int) -> bool:
        """Wait, without the interpreter's lock; also whether another thread has released it meanwhile."""
        status = _lib.mlt_wait(self.handle, transfer, timeout_ns, _ffi.NULL)
        return status == Status.UNKNOWN or _checked(status, "wait") == Status.OK

    def result(self, transfer: int) -> Any:
        """The `struct mlt_result` as it is now; its `status` is PENDING while the transfer is open."""
        result = _ffi.new("struct mlt_result *")
        _checked(_lib.mlt_result(self.handle, transfer, result), "result")
        return result

    @staticmethod
    def arrived(result: Any) -> bytes:
        """The bitmap of a result, before the transfer is released: 1 says that the packet has arrived."""
        return bytes(_ffi.buffer(result.arrived, (result.packets + 7) // 8))

    @staticmethod
    def text(result: Any) -> str:
        """The reason that a failed transfer's result gives, the peer's own words included."""
        return cast(str, _ffi.string(result.text).decode("ascii", "replace"))

    def notify(self, transfer: int) -> bool:
        """Whether it is done already; else an event DONE will tell."""
        if self.handle == _ffi.NULL:  # finalizers of what is freed together come in any order
            raise DataPlaneError(Status.DEAD, "notify")
        return _checked(_lib.mlt_notify(self.handle, transfer), "notify") == Status.OK

    def set_tos(self, transfer: int, important: int, unimportant: int) -> None:
        """DSCP/ECN bytes of what a send has not yet sent; nothing happens where it is done."""
        _checked(_lib.mlt_set_tos(self.handle, transfer, important, unimportant), "set tos")

    def finish(self, transfer: int) -> None:
        """A receive takes what is there."""
        _checked(_lib.mlt_finish(self.handle, transfer), "finish")

    def cancel(self, transfer: int, text: str = "cancelled") -> None:
        """A transfer fails, here and at the peer."""
        _checked(_lib.mlt_cancel(self.handle, transfer, text.encode("ascii", "replace")), "cancel")

    def release(self, transfer: int) -> None:
        """Forget a transfer that is done."""
        _checked(_lib.mlt_release(self.handle, transfer), "release")
        self._memory.pop(transfer, None)

    @property
    def event_descriptor(self) -> int:
        """Readable while there are events."""
        return cast(int, _lib.mlt_event_descriptor(self.handle))

    def next_event(self) -> Any:
        """The next `struct mlt_event`, or None."""
        event = _ffi.new("struct mlt_event *")
        return event if _checked(_lib.mlt_next_event(self.handle, event), "next event") else None
