"""What the compiled engine reads and writes: tables of records, reached by address.

Compiled code passes a record as one pointer. An array costs a dozen words and an atomic count of its users
at every call, which took more than half of the time. So one record, WORLD, holds the addresses of all tables,
and `port_at(world.ports, 3)` is the fourth port. `world.World` keeps the arrays alive.

Times are picoseconds, lengths bytes. NONE ends lists.
"""

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from numba import from_dtype, types
from numba.extending import intrinsic

from mltswitch.network.units import LONGEST_PICOSECONDS, PICOSECONDS
from mltswitch.queueing.jit import jit

Record = Any
"""One element of a table; its fields are read as attributes, which only compiled code can."""

NONE: Final = -1
NEVER: Final = LONGEST_PICOSECONDS
BITS_PICOSECONDS: Final = 8 * PICOSECONDS
"""Times bytes, over bit/s: picoseconds."""

DATA, ACK, PROBE, MISSING, STOP, TRIMMED, NACK, PULL = range(8)
"""Kinds of packets; MISSING is the receiver's answer to a probe, TRIMMED what a switch has left of data."""
UNIMPORTANT, IMPORTANT, ANSWERS = range(3)
"""What queues count: data by importance, and all other kinds of packets."""
ADVANCED, GROW, ENDED = range(3)
"""Why the event loop returned: its share of events is done; the packet table is full; nothing will happen."""
SPARE_PACKETS: Final = 8
"""More than one event makes."""


def _record(*fields: tuple[str, Any] | tuple[str, Any, tuple[int, ...]]) -> np.dtype[Any]:
    return np.dtype(list(fields), align=True)


PACKET: Final = _record(
    ("sent", np.int64),
    ("arrival", np.int64),
    ("flow", np.int32),
    ("number", np.int32),
    ("size", np.int32),
    ("hop", np.int32),
    ("next", np.int32),
    ("rank", np.int32),
    ("kind", np.int8),
    ("queue", np.int8),
    ("capable", np.int8),
    ("marked", np.int8),
)
"""A packet on its way, or a free place. The same record comes back as its acknowledgement.

- `sent`: when the sender's line began it; an acknowledgement keeps that of its packet.
- `arrival`: when it reaches the end of the line that it is on.
- `hop`: the place in HOP of the port after this one.
- `rank`: where switches serve by rank, the lowest goes first.
- `queue`: the class; `capable`: of marks, hence important; `marked`: carries one, or reports one.
"""

PORT: Final = _record(
    ("free", np.int64),
    ("bps", np.int64),
    ("delay", np.int64),
    ("loss", np.float64),
    ("pulled", np.int64),
    ("first", np.int32),
    ("last", np.int32),
    ("pool", np.int32),
    ("waiting", np.int32),
    ("pulls", np.int32),
    ("armed", np.int8),
    ("guaranteed", np.int8),
    ("discipline", np.int8),
    ("sent_packets", np.int64),
    ("sent_bytes", np.int64),
    ("lost_packets", np.int64),
    ("lost_bytes", np.int64),
)
"""A sending port and its line.

- `free`: when the transmission ends; `first`, `last`: packets on the line, in order of arrival.
- `armed`: something waits for the line, so its end is an event; `waiting`: packets in all queues.
- `loss`: probability that the line loses a packet; `guaranteed`: queues that have a share.
- `pulls`: at a host, the last of the flows to it that it is to pull; `pulled`: when it may pull next.
"""

POOL: Final = _record(("size", np.int64), ("used", np.int64), ("peak", np.int64))
"""Packet memory of a port, or of all ports of a switch."""

QUEUE: Final = _record(
    ("head", np.int32),
    ("tail", np.int32),
    ("bytes", np.int64),
    ("threshold", np.float64),
    ("limit", np.float64),
    ("alpha", np.float64),
    ("share", np.float64),
    ("credit", np.float64),
    ("peak", np.int64),
    ("offered", np.int64, (3,)),
    ("dropped", np.int64, (3,)),
    ("dropped_bytes", np.int64),
    ("marked", np.int64),
)
"""One class at one port; `offered` and `dropped` count unimportant, important and ANSWERS.

`share`: of the line, however much waits in the queues before it; `credit`: bytes of it not yet used.
"""

FLOW: Final = _record(
    ("size_bytes", np.int64),
    ("start", np.int64),
    ("finish", np.int64),
    ("due", np.int64),
    ("deadline", np.int64),
    ("rto", np.int64),
    ("srtt", np.int64),
    ("rttvar", np.int64),
    ("bits", np.int64),
    ("sent_bytes", np.int64),
    ("sent_packets", np.int64),
    ("resent_packets", np.int64),
    ("marked_packets", np.int64),
    ("dropped_packets", np.int64),
    ("window", np.float64),
    ("slow_start_end", np.float64),
    ("alpha", np.float64),
    ("rate", np.float64),
    ("packets", np.int32),
    ("settings", np.int32),
    ("source", np.int32),
    ("destination", np.int32),
    ("path", np.int32),
    ("paths", np.int32),
    ("back", np.int32),
    ("backs", np.int32),
    ("ring", np.int32),
    ("pair", np.int32),
    ("first", np.int32),
    ("next", np.int32),
    ("highest", np.int32),
    ("recover", np.int32),
    ("duplicates", np.int32),
    ("window_end", np.int32),
    ("reduced_until", np.int32),
    ("acked", np.int32),
    ("marks", np.int32),
    ("received", np.int32),
    ("arrived", np.int32),
    ("stride", np.int8),
    ("back_stride", np.int8),
    ("queue", np.int8),
    ("back_queue", np.int8),
    ("state", np.int8),
    ("listed", np.int8),
    ("closed", np.int8),
)
"""A flow, both ends of it. What a field means to one transport stands in the transport's module.

- `source`, `destination`: sending ports of both hosts.
- `path`: place in HOP of the first of `paths` ways, `stride` places from one to the next; `back` for answers.
- `bits`: place in WORD of a bit for each packet, at the receiver, and then as many for the sender.
- `ring`: the next flow of the same class and host that may send; `listed`: it is in that ring.
- `pair`: the flow whose record has the rate of all flows between the two hosts; or the flow itself.
- `first`, `next`, `highest`: the lowest number not acknowledged, the one to send now, the first never sent.
- `closed`: the sender knows that it is done.
"""

SETTINGS: Final = _record(
    ("transport", np.int64),
    ("payload", np.int64),
    ("header", np.int64),
    ("answer_bytes", np.int64),
    ("line_rate_share", np.float64),
    ("initial_window", np.float64),
    ("least_rto", np.int64),
    ("duplicates", np.int64),
    ("gain", np.float64),
    ("low", np.int64),
    ("high", np.int64),
    ("increase", np.float64),
    ("decrease", np.float64),
    ("gradient_weight", np.float64),
    ("fast_after", np.int64),
    ("fast_factor", np.float64),
    ("least_rate", np.float64),
    ("packets_per_answer", np.int64),
    ("loss_bound", np.float64),
    ("unimportant", np.float64),
    ("probes_wait", np.int64),
    ("pairs", np.int64),
    ("holds", np.int64),
    ("shortest_first", np.int64),
    ("rto_round_trips", np.float64),
    ("probe_after", np.int64),
    ("bitmaps", np.int64),
    ("cubic", np.float64),
    ("beta", np.float64),
    ("demotions", np.int64),
    ("demotion", np.int64, (15,)),
    ("first_class", np.int64),
    ("last_class", np.int64),
)
"""Parameters of one transport; each transport reads its own."""

RING: Final = _record(("last", np.int32))
"""The last of the flows of one class at one host that may send, whose `ring` is the first."""
HOP: Final = _record(("port", np.int32))
"""The ports of all paths in a row, NONE at the end of each."""
WORD: Final = _record(("bits", np.uint64))
START: Final = _record(("time", np.int64), ("task", np.int32))
"""A task that waits for no other."""
TASK: Final = _record(("waits", np.int32), ("followers", np.int32))
"""A flow, or behind all flows a step: what a host computes.

`waits`: for how many tasks it still waits; of one that has ended, the next of those whose followers have not
heard of it. `followers`: place in FOLLOWER of the tasks that wait for it, up to that of the next task.
"""
FOLLOWER: Final = _record(("task", np.int32))
STEP: Final = _record(("duration", np.int64), ("finish", np.int64))
ENTRY: Final = _record(("time", np.int64), ("order", np.int64), ("id", np.int64))
"""An event of a heap: ties go by `order`, in which events were made."""
PLACE: Final = _record(("place", np.int32))
"""Where the event of a port or flow lies in its heap."""
HEAP: Final = _record(("entries", np.int64), ("places", np.int64), ("count", np.int64))

_TABLES: Final = (
    "packet",
    "port",
    "pool",
    "queue",
    "flow",
    "ring",
    "hop",
    "word",
    "start",
    "task",
    "follower",
    "step",
    "heap",
)
WORLD: Final = _record(
    *((f"{name}s", np.int64) for name in _TABLES),
    ("settings", np.int64),
    ("now", np.int64),
    ("order", np.int64),
    ("random", np.uint64),
    ("tag_seed", np.uint64),
    ("hosts", np.int64),
    ("port_count", np.int64),
    ("classes", np.int64),
    ("start_count", np.int64),
    ("next_start", np.int64),
    ("flow_count", np.int64),
    ("ended", np.int64),
    ("free", np.int64),
    ("packet_places", np.int64),
    ("alive", np.int64),
    ("peak_alive", np.int64),
    ("events", np.int64),
    ("hop_count", np.int64),
    ("finished", np.int64),
    ("made_bytes", np.int64),
    ("delivered_bytes", np.int64),
    ("next_change", np.int64),
    ("depth_count", np.int64),
    ("depth_interval", np.int64),
)
"""Addresses of the tables, and the state of the run. Ports of hosts come first among `ports`.

`ended`: the first task that has ended whose followers have not heard of it.
"""


@jit
def wide(number: Any) -> int:
    """A record's narrow number as functions take it, which would be compiled anew for every other type."""
    return int(np.int64(number))


_FLOW_BYTES: Final = FLOW.itemsize
PORT_EVENTS, FLOW_EVENTS = range(2)
"""The heaps: few ports, most of which have an event (behind them hosts, whose event is a pull), and many
tasks, few of which have one."""


def _reader(dtype: np.dtype[Any]) -> Callable[[int, int], Record]:
    """A compiled function of a table's address and an index that returns the record there."""
    record, size = from_dtype(dtype), dtype.itemsize

    @intrinsic
    def at(_context: Any, _address: Any, _index: Any) -> Any:
        def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            address, index = arguments
            offset = builder.mul(index, context.get_constant(types.int64, size))
            return builder.inttoptr(builder.add(address, offset), context.get_value_type(record))

        return record(types.int64, types.int64), build

    return cast("Callable[[int, int], Record]", at)


packet_at: Final = _reader(PACKET)
port_at: Final = _reader(PORT)
pool_at: Final = _reader(POOL)
queue_at: Final = _reader(QUEUE)
flow_at: Final = _reader(FLOW)
settings_at: Final = _reader(SETTINGS)
ring_at: Final = _reader(RING)
hop_at: Final = _reader(HOP)
word_at: Final = _reader(WORD)
start_at: Final = _reader(START)
task_at: Final = _reader(TASK)
follower_at: Final = _reader(FOLLOWER)
step_at: Final = _reader(STEP)
entry_at: Final = _reader(ENTRY)
place_at: Final = _reader(PLACE)
heap_at: Final = _reader(HEAP)


@intrinsic
def _pointer(_context: Any, record: Any) -> Any:
    def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(arguments[0], context.get_value_type(types.int64))

    return types.int64(record), build


_address: Final = cast("Callable[[Record], int]", _pointer)


@jit
def number_of(world: Record, flow: Record) -> int:
    """A flow's number, from where its record lies."""
    return int((_address(flow) - world.flows) // _FLOW_BYTES)
