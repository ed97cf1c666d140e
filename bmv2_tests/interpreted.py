"""The program in the interpreter, behind the face of `bmv2_tests.switch` and a P4Runtime server as PI's.

What leads to the interpreter is what leads to a real switch: frames, and the messages of the product's own
connection. Only BMv2's queues are written anew, in virtual time: strict priority, rates and depths; a port is
never held up from outside.
"""

import tempfile
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import grpc
from google.rpc import code_pb2, status_pb2
from p4.v1 import p4runtime_pb2

from bmv2_tests.interpreter import Entry, Interpreter, Meter, Packet, compiled
from bmv2_tests.runtime_cli import RuntimeCli
from bmv2_tests.switch import CPU_PORT, QUEUE_DEPTH_PACKETS, AnySwitch
from mltswitch.p4.control import open_switch
from mltswitch.p4.program import QUEUES_PER_PORT, Program
from tests.p4.servers import ObedientServer, serving

_SECOND: Final = 1e6
_SHORTEST_FRAME_BYTES: Final = 14
"""That a cable carries."""
_PATIENCE_SECONDS: Final = 120.0
_OK, _UPDATE = code_pb2.OK, p4runtime_pb2.Update


class P4RuntimeServer(ObedientServer):
    """What a controller writes is in the interpreter's tables, and what it reads is what is there."""

    def __init__(self, switch: "InterpretedSwitch") -> None:
        self._switch = switch
        self._config: Any = None

    def StreamChannel(self, request_iterator: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802  (gRPC's name)
        for request in request_iterator:
            if request.HasField("packet"):
                port, reserved = (int.from_bytes(each.value, "big") for each in request.packet.metadata)
                self._switch.receive(
                    CPU_PORT, (port << 7 | reserved).to_bytes(2, "big") + request.packet.payload
                )
            else:
                yield from super().StreamChannel(iter([request]), context)

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802  (gRPC's name)
        self._config, info = request.config, request.config.p4info
        self._named = {
            each.preamble.id: each
            for group in (info.tables, info.actions, info.counters, info.meters)
            for each in group
        }
        self._switch.interpreter = Interpreter(compiled(request.config.p4_device_config))
        return super().SetForwardingPipelineConfig(request, context)

    def Write(self, request: Any, context: Any) -> Any:  # noqa: N802  (gRPC's name)
        status = status_pb2.Status(code=code_pb2.UNKNOWN)
        for update in request.updates:
            code = (self._write_entry if update.entity.HasField("table_entry") else self._write_meter)(update)
            status.details.add().Pack(p4runtime_pb2.Error(canonical_code=code))
        if any(p4runtime_pb2.Error.FromString(each.value).canonical_code != _OK for each in status.details):
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode.UNKNOWN, "Write failure.")
        return super().Write(request, context)

    def Read(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802  (gRPC's name)
        interpreter, response = self._switch.interpreter, p4runtime_pb2.ReadResponse()
        for entity in request.entities:
            if entity.HasField("counter_entry"):
                found = response.entities.add().counter_entry
                found.CopyFrom(entity.counter_entry)
                cells = interpreter.counters[self._named[found.counter_id].preamble.name]
                found.data.packet_count, found.data.byte_count = cells[found.index.index]
            else:
                table = interpreter.tables[self._named[entity.table_entry.table_id].preamble.name]
                for entries in table.entries.values():
                    for entry in entries.values():
                        response.entities.add().table_entry.CopyFrom(entry.told)
        yield response

    def _write_entry(self, update: Any) -> int:
        """The canonical code of the outcome."""
        told = update.entity.table_entry
        info = self._named[told.table_id]
        table = self._switch.interpreter.tables[info.preamble.name]
        fields = {match.field_id: match for match in told.match}
        values, masks = [], []
        for field in info.match_fields:
            # What matches everything is left out (P4Runtime, 9.1.1).
            match = fields.get(field.id, p4runtime_pb2.FieldMatch(lpm={}))
            is_exact = match.HasField("exact")
            values.append(int.from_bytes(match.exact.value if is_exact else match.lpm.value, "big"))
            free_bits = 0 if is_exact else field.bitwidth - match.lpm.prefix_len
            masks.append((1 << field.bitwidth) - (1 << free_bits))
        key, mask = tuple(values), tuple(masks)
        is_there = key in table.entries.get(mask, {})
        if update.type == _UPDATE.INSERT and is_there:
            return int(code_pb2.ALREADY_EXISTS)
        if update.type == _UPDATE.INSERT and len(table) >= table.size:
            return int(code_pb2.RESOURCE_EXHAUSTED)
        if update.type != _UPDATE.INSERT and not is_there:
            return int(code_pb2.NOT_FOUND)
        if update.type == _UPDATE.DELETE:
            del table.entries[mask][key]
        else:
            members = [each.action for each in told.action.action_profile_action_set.action_profile_actions]
            actions = [self._action(each) for each in members or [told.action.action]]
            table.set(mask, key, Entry(actions, told))
        return int(_OK)

    def _action(self, action: Any) -> tuple[str, tuple[int, ...]]:
        info, values = self._named[action.action_id], {each.param_id: each.value for each in action.params}
        return info.preamble.name, tuple(int.from_bytes(values[each.id], "big") for each in info.params)

    def _write_meter(self, update: Any) -> int:
        told, interpreter = update.entity.meter_entry, self._switch.interpreter
        rates = ((told.config.cir, told.config.cburst), (told.config.pir, told.config.pburst))
        cells = interpreter.meters[self._named[told.meter_id].preamble.name]
        cells[told.index.index] = Meter([(rate / _SECOND, burst) for rate, burst in rates], interpreter.now)
        return int(_OK)


class Queue:
    """One of BMv2's queues (QueueingLogicPriRL): as a packet joins, it is said when it may leave."""

    def __init__(self) -> None:
        self.packets: deque[tuple[float, Packet]] = deque()
        self.capacity = QUEUE_DEPTH_PACKETS
        self.delay = self._last_sent = 0.0

    def push(self, packet: Packet, now: float) -> None:
        """Add a packet, or drop it where the queue is full."""
        if len(self.packets) < self.capacity:
            self._last_sent = max(now, self._last_sent + self.delay)
            self.packets.append((self._last_sent, packet))


class InterpretedEnd:
    """The other end of a cable."""

    def __init__(self, switch: "InterpretedSwitch", port: int) -> None:
        self.frames: deque[bytes] = deque()
        self.deliver: Callable[[bytes], None] = self.frames.append
        self._switch, self._port = switch, port

    def send(self, frame: bytes) -> None:
        """A frame comes to the switch."""
        self._switch.receive(self._port, frame)

    def received(self) -> Iterator[bytes]:
        """All frames that wait."""
        while self.frames:
            yield self.frames.popleft()


class InterpretedCli(RuntimeCli):
    """Those commands of `simple_switch_CLI` that the tests give."""

    def __init__(self, switch: "InterpretedSwitch") -> None:
        self._switch = switch

    def run(self, *commands: str) -> list[str]:
        return [self._run(*command.split()) for command in commands]

    def _run(self, verb: str, *words: str) -> str:
        switch = self._switch
        match verb, words:
            case "counter_read", (name, index):
                packets, size_bytes = switch.interpreter.counters[name][int(index)]
                return f"({size_bytes} bytes, {packets} packets)"
            case "register_read", (name, index):
                return f"{name}[{index}]= {switch.interpreter.registers[name][int(index)]}"
            case "register_write", (name, index, value):
                switch.interpreter.write(name, int(index), int(value))
            case "set_queue_rate", (rate, *place):
                for queue in switch.queues_of(*map(int, place)):
                    queue.delay = _SECOND / int(rate) if int(rate) else 0.0
            case "set_queue_depth", (packets, *place):
                for queue in switch.queues_of(*map(int, place)):
                    queue.capacity = int(packets)
            case _:
                raise AssertionError(f"simple_switch_CLI is not imitated: {verb} {words}")
        return ""


class InterpretedSwitch(AnySwitch):
    """A switch without a process; its clock goes on as packets come, and as tests wait."""

    interpreter: Interpreter
    is_alive = True

    def __init__(self, ports: int) -> None:
        self.cables = {port: InterpretedEnd(self, port) for port in range(1, ports + 1)}
        self.ends = self.cables
        self.cli = InterpretedCli(self)
        self._queues: dict[tuple[int, int], Queue] = defaultdict(Queue)
        self._lock = threading.RLock()  # a ring of switches comes back
        self._loaded: tuple[Program, tuple[str, ...]] | None = None
        self._barriers = count(1)

    def load(self, program: Program, lines: Sequence[str] = ()) -> None:
        self._queues.clear()
        wanted = (program, tuple(lines))
        if wanted == self._loaded:  # what came of the same messages before
            self.interpreter = Interpreter(self.interpreter.code)
        else:
            self.control.load(program)
            self.control.write(lines)
            self._loaded, self._tables = wanted, self.interpreter.tables
        self.interpreter.tables = {name: table.copy() for name, table in self._tables.items()}

    def queues_of(self, port: int | None = None, *queues: int) -> list[Queue]:
        """All, those of a port, or one of them."""
        if port is None:
            return list(self._queues.values())
        return [self._queues[port, queue] for queue in queues or range(QUEUES_PER_PORT)]

    def receive(self, port: int, frame: bytes) -> None:
        """A frame comes by a port; all that may leave by then leaves."""
        with self._lock:
            self.interpreter.now += 1
            packet = self.interpreter.ingress(port, frame)
            if packet is not None:
                self._queues[packet.port, packet.queue].push(packet, self.interpreter.now)
            self._serve(self.interpreter.now)

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self._serve(self.interpreter.now + seconds * _SECOND)

    def drain(self) -> list[tuple[int, bytes]]:
        return [(port, frame) for port, end in self.ends.items() for frame in end.received()]

    def frames(self) -> Iterator[tuple[int, bytes]]:
        while True:
            for port, end in self.ends.items():
                for frame in end.received():
                    yield port, frame
            with self._lock:
                following = self._next_departure()
                assert following is not None, "no frame is left"
                self._serve(following)

    def _next_departure(self) -> float | None:
        return min((queue.packets[0][0] for queue in self._queues.values() if queue.packets), default=None)

    def _serve(self, until: float) -> None:
        """Let leave what may until then: what may first, and of what may now the highest queue."""
        interpreter = self.interpreter
        while (following := self._next_departure()) is not None and following <= until:
            interpreter.now = max(interpreter.now, following)
            ready = [
                place
                for place, queue in self._queues.items()
                if queue.packets and queue.packets[0][0] <= interpreter.now
            ]
            port, number = max(ready, key=lambda place: place[1])
            queue = self._queues[port, number]
            _, packet = queue.packets.popleft()
            frame = interpreter.egress(packet, len(queue.packets))
            if port in self.ends and frame and len(frame) >= _SHORTEST_FRAME_BYTES:
                self.cables[port].deliver(frame)
        interpreter.now = max(interpreter.now, until)


@contextmanager
def interpreted_switch(ports: int) -> Iterator[InterpretedSwitch]:
    """A switch with a cable in each of the ports 1 to `ports`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bmv2-test-")))
        switch = InterpretedSwitch(ports)
        address = stack.enter_context(serving(P4RuntimeServer(switch), folder))
        switch.control = stack.enter_context(
            open_switch(address, device_id=1, timeout_seconds=_PATIENCE_SECONDS)
        )
        yield switch
