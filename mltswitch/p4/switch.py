"""A session with one BMv2 switch: arbitration, deadlines, and clear errors (P4Runtime 1.3, chapter 5).

What is written and read are the lines of `mltswitch.p4.entries`. A switch takes one program at a time;
entries added behind P4Runtime's back, by BMv2's own CLI, make its P4Runtime server refuse every read of that
table.

p4runtime-shell's client is made for its own prompt: it prints, logs, ends the process where a handshake
fails, waits for ever for a switch that says nothing, keeps a program alive by a thread of its own, and its
reader of write errors never ends where a batch failed behind an entry that was accepted. What is used of it
is the client's identity and the generated protocol; all that waits is here.
"""

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Final

import grpc
from google.protobuf import text_format
from google.rpc import code_pb2, status_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc
from p4.v1.p4runtime_pb2 import Entity
from p4runtime_sh.p4runtime import P4RuntimeClient

from mltswitch.errors import DeviceError, UserInputError
from mltswitch.p4.entries import Schema, bytes_of, int_of, key_of, line_of, parse_lines, schema_of, table_of
from mltswitch.p4.program import CPU_PORT, PORTS, QUEUES_PER_PORT, Program, refusal_reasons

CHANNEL_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),  # a switch is never behind a web proxy
    ("grpc.max_receive_message_length", 64 * 2**20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),  # a switch that was dead a moment ago is tried again at once
)
BATCH_LINES: Final = 50
"""Lines in one WriteRequest: more are no faster (1,000 entries in 0.4 s), and a refusal is harder to undo."""
MAXIMUM_PACKETS_IN: Final = 1000
"""How many unread packets-in are kept; beyond that the oldest is dropped."""
END_SECONDS: Final = 5.0
"""Seconds to wait for a switch to confirm the end of a session; then it is ended without."""
QUEUE_TABLE: Final = "queues"
"""The table whose entries are the queues that packets can join."""
REFUSAL_COUNTER: Final = "refused"
DECISION_COUNTER: Final = "decisions"
_DETAILS_KEY: Final = "grpc-status-details-bin"
_MAXIMUM_QUOTED_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class Count:
    """Packets and bytes that one cell of a P4 counter has counted."""

    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """What one queue did since its program was loaded; the fields are the cells of `decisions`, in order."""

    forwarded_unmarked: Count
    forwarded_marked: Count
    dropped_unimportant: Count
    dropped_limit: Count

    @property
    def arrived(self) -> Count:
        """All packets and bytes that arrived at the queue: forwarded ones and dropped ones."""
        cells = [getattr(self, field.name) for field in fields(self)]
        return Count(sum(cell.packets for cell in cells), sum(cell.bytes for cell in cells))


DECISIONS: Final = len(fields(QueueCounters))


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A packet that the switch sent to its controller."""

    frame: bytes
    ingress_port: int
    reason: int
    """Why the switch sent it: a number of refusals.p4."""


def pipeline_config(program: Program) -> Any:
    """A program as the ForwardingPipelineConfig to load."""
    config = p4runtime_pb2.ForwardingPipelineConfig(p4_device_config=program.device_config)
    text_format.Parse(program.p4info_text, config.p4info)
    config.cookie.cookie = program.cookie
    return config


class Switch(P4RuntimeClient):  # type: ignore[misc]  # it has no types
    """An open session with one switch; every method raises DeviceError naming its address."""

    channel: grpc.Channel

    def __init__(self, address: str, *, device_id: int, election_id: int, timeout_seconds: float) -> None:
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._packets: deque[PacketIn] = deque(maxlen=MAXIMUM_PACKETS_IN)
        self._receiver: threading.Thread | None = None
        self._known_schema: Schema | None = None
        super().__init__(device_id, address, divmod(election_id, 2**64))

    def set_up_stream(self) -> None:
        """Open the session's own channel, without arbitration yet; the base class calls it last."""
        self.channel.close()
        self.channel = grpc.insecure_channel(self._address, options=CHANNEL_OPTIONS)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)

    def become_primary(self) -> None:
        """Become the primary controller, which alone may write; raises DeviceError where another one is."""
        request = p4runtime_pb2.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        self._identify(request.arbitration)
        self._outgoing.put(request)
        self.stream = self.stub.StreamChannel(iter(self._outgoing.get, None))
        self._receiver = threading.Thread(target=self._receive, daemon=True, name="p4runtime-stream")
        self._receiver.start()
        try:
            answer = self._answers.get(timeout=self._timeout_seconds)
        except queue.Empty:
            raise self._error(f"has not answered within {self._timeout_seconds:g} s") from None
        if isinstance(answer, grpc.RpcError):
            # PI's server refuses an election id that is in use, where others tell who is primary.
            if answer.code() == grpc.StatusCode.INVALID_ARGUMENT and "already exists" in answer.details():
                raise self._other_primary(self.election_id[0] * 2**64 + self.election_id[1])
            raise self._rpc_error("to be controlled", answer)
        if answer is None:
            raise self._error("ended the session at its beginning")
        if answer.status.code != code_pb2.OK:
            raise self._other_primary(_election_id(answer.election_id))

    def tear_down(self) -> None:
        """End the session, and wait until the switch knows, so that the election id is free again at once."""
        if self._receiver is not None:
            self._outgoing.put(None)
            self._receiver.join(min(END_SECONDS, self._timeout_seconds))
            self.stream.cancel()
            self._receiver.join(END_SECONDS)
        self.channel.close()

    def cookie(self) -> int | None:
        """Cookie of the program that the switch runs; None where there is no program or no cookie."""
        config = self._pipeline(p4runtime_pb2.GetForwardingPipelineConfigRequest.COOKIE_ONLY)
        return int(config.cookie.cookie) if config is not None and config.HasField("cookie") else None

    def load(self, program: Program) -> None:
        """Make the switch run a program, with all tables empty and all counters and registers 0."""
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(
            device_id=self.device_id,
            action=p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=pipeline_config(program),
        )
        self._identify(request)
        try:
            self.stub.SetForwardingPipelineConfig(request, timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            failure = self._rpc_error("the program", error)
            if "assign device" in failure.what:  # PI's server answers for every number until it must act
                failure.hint = f"does the switch have another device id than {self.device_id}?"
            raise failure from None
        self._known_schema = schema_of(request.config.p4info)

    def write(self, lines: Sequence[str]) -> None:
        """Carry out lines in order, each of which adds, changes or removes an entry or sets a meter.

        The switch applies a batch entry by entry and goes on behind one that it refuses; the error says
        how many took effect.

        Raises:
            UserInputError: a line is not of the language, or not of the switch's program; nothing was sent.
            DeviceError: the switch refused a line, which is named, or a whole batch, or there is no answer.
        """
        updates = parse_lines(lines, self._schema())
        for first in range(0, len(updates), BATCH_LINES):
            batch = updates[first : first + BATCH_LINES]
            request = p4runtime_pb2.WriteRequest(device_id=self.device_id, updates=batch)
            self._identify(request)
            try:
                self.stub.Write(request, timeout=self._timeout_seconds)
            except grpc.RpcError as error:
                raise self._refused(lines, first, _update_reasons(error, len(batch)), error) from None

    def entries(self) -> tuple[str, ...]:
        """Every entry of every table as its `table_add` line, sorted by table and key."""
        with self._named():
            return tuple(line_of(entity, self._schema()) for *_, entity in self._entries())

    def meters(self) -> tuple[str, ...]:
        """Every meter cell that has rates as its `meter_set_rates` line, sorted by meter and index."""
        schema, cells = self._schema(), p4runtime_pb2.MeterEntry
        wanted = (Entity(meter_entry=cells(meter_id=each.preamble.id)) for each in schema.meters.values())
        found = [entity for entity in self._read(wanted) if entity.meter_entry.HasField("config")]
        with self._named():
            lines = [line_of(entity, schema) for entity in found]
        return tuple(sorted(lines, key=lambda line: (line.split()[1], int(line.split()[2]))))

    def counters(self) -> Mapping[tuple[int, int], QueueCounters]:
        """(port, queue) → its counters, for every queue that has an entry in the table `queues`."""
        places = [(key[0][0], key[1][0]) for table, key, _ in self._entries() if table == QUEUE_TABLE]
        firsts = [(port * QUEUES_PER_PORT + queue) * DECISIONS for port, queue in places]
        cells = self._cells(
            DECISION_COUNTER, [first + number for first in firsts for number in range(DECISIONS)]
        )
        return {
            place: QueueCounters(*cells[first : first + DECISIONS])
            for place, first in zip(places, range(0, len(cells), DECISIONS), strict=True)
        }

    def refusals(self) -> Mapping[str, int]:
        """Why packets were refused before they reached a queue → how many, since the program was loaded."""
        reasons = refusal_reasons()
        cells = self._cells(REFUSAL_COUNTER, list(reasons))
        return {reason: cell.packets for reason, cell in zip(reasons.values(), cells, strict=True)}

    def packet_out(self, frame: bytes, port: int) -> None:
        """Have the switch send a frame by a port, as it is (P4Runtime, PacketOut).

        Raises:
            UserInputError: the switch has no such port.
            DeviceError: this is not its primary controller, to whom alone the switch listens.
        """
        if port not in range(PORTS) or port == CPU_PORT:
            raise UserInputError(
                f"no port {port}", where=self._address, expected=f"0 … {PORTS - 1}, but not {CPU_PORT}"
            )
        if self._receiver is None:
            raise self._error("takes frames from its primary controller alone")
        request = p4runtime_pb2.StreamMessageRequest()
        request.packet.payload = frame
        for number, value in enumerate((port, 0), start=1):  # the fields of packet_out_t in headers.p4
            request.packet.metadata.add(metadata_id=number, value=bytes_of(value))
        self._outgoing.put(request)

    def packets_in(self) -> tuple[PacketIn, ...]:
        """Packets that the switch could not forward since the last call; only the primary gets them."""
        return tuple(self._packets.popleft() for _ in range(len(self._packets)))

    def _schema(self) -> Schema:
        """Of the program that the switch runs."""
        if self._known_schema is None:
            config = self._pipeline(p4runtime_pb2.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE)
            if config is None or not config.HasField("p4info"):
                raise self._error("runs no P4 program", hint="a push loads it first")
            self._known_schema = schema_of(config.p4info)
        return self._known_schema

    def _entries(self) -> list[tuple[str, tuple[tuple[int, int], ...], Any]]:
        """Every entry behind its table and its key, by which they are sorted."""
        schema, entries = self._schema(), p4runtime_pb2.TableEntry
        wanted = (Entity(table_entry=entries(table_id=each.preamble.id)) for each in schema.tables.values())
        found = []
        with self._named():
            for entity in self._read(wanted):
                table = table_of(entity.table_entry, schema)
                found.append((table.preamble.alias, key_of(entity.table_entry, table), entity))
        return sorted(found, key=lambda each: each[:2])

    def _cells(self, name: str, indices: Sequence[int]) -> list[Count]:
        """Cells of a counter, in the order asked for."""
        counter = self._schema().counters.get(name)
        if counter is None:
            raise self._error(
                f"runs another P4 program, without the counter {name!r}", hint="a push loads ours"
            )
        number, cells = counter.preamble.id, p4runtime_pb2.CounterEntry
        places = (p4runtime_pb2.Index(index=index) for index in indices)
        wanted = (Entity(counter_entry=cells(counter_id=number, index=place)) for place in places)
        read = [entity.counter_entry for entity in self._read(wanted)]
        found = {cell.index.index: Count(cell.data.packet_count, cell.data.byte_count) for cell in read}
        if not found.keys() >= set(indices):
            raise self._error("did not return all counters")
        return [found[index] for index in indices]

    def _pipeline(self, response_type: int) -> Any:
        request = p4runtime_pb2.GetForwardingPipelineConfigRequest(
            device_id=self.device_id, response_type=response_type
        )
        try:
            return self.stub.GetForwardingPipelineConfig(request, timeout=self._timeout_seconds).config
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:  # none was loaded
                return None
            raise self._rpc_error("to tell its program", error) from None

    def _read(self, wanted: Iterable[Any]) -> Iterator[Any]:
        request = p4runtime_pb2.ReadRequest(device_id=self.device_id, entities=wanted)
        if not request.entities:  # nothing asked for
            return
        try:
            for response in self.stub.Read(request, timeout=self._timeout_seconds):
                yield from response.entities
        except grpc.RpcError as error:
            raise self._rpc_error("a read", error) from None

    def _identify(self, message: Any) -> None:
        message.election_id.high, message.election_id.low = self.election_id

    def _receive(self) -> None:
        """Runs in a thread of its own until the stream ends."""
        try:
            for message in self.stream:
                if message.HasField("arbitration"):
                    self._answers.put(message.arbitration)
                elif message.HasField("packet"):  # the fields of packet_in_t in headers.p4
                    values = {field.metadata_id: int_of(field.value) for field in message.packet.metadata}
                    frame = bytes(message.packet.payload)
                    self._packets.append(PacketIn(frame, values.get(1, 0), values.get(2, 0)))
            self._answers.put(None)
        except grpc.RpcError as error:
            self._answers.put(error)

    def _refused(
        self, lines: Sequence[str], first: int, reasons: Sequence[str | None], error: Any
    ) -> DeviceError:
        """A batch that begins at `first` was refused: some lines of it, for reasons that are told, or all."""
        if not any(reasons):
            failure = self._rpc_error("a write", error)
            failure.what += f"; the first {first} of {len(lines)} lines took effect" if first else ""
            return failure
        refused = next(index for index, reason in enumerate(reasons) if reason is not None)
        return self._error(
            f"refuses line {first + refused + 1} of {len(lines)}, {lines[first + refused]!r}: "
            f"{reasons[refused]}; {first + reasons.count(None)} of {len(lines)} lines took effect"
        )

    def _rpc_error(self, what: str, error: Any) -> DeviceError:
        code, details = error.code(), " ".join((error.details() or "").split())
        details = details[:_MAXIMUM_QUOTED_CHARACTERS]
        if code == grpc.StatusCode.UNAVAILABLE:
            return self._error(f"cannot be reached: {details}")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return self._error(f"has not answered within {self._timeout_seconds:g} s")
        if code == grpc.StatusCode.FAILED_PRECONDITION:
            return self._error(f"refuses {what}: {details}", hint="a push loads the P4 program first")
        if code == grpc.StatusCode.PERMISSION_DENIED:
            return self._other_primary(self._later_primary())
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return self._error(f"does not know how to answer for {what}: {details or 'no P4Runtime server'}")
        return self._error(f"refuses {what}: {code.name}: {details or 'no reason given'}")

    def _later_primary(self) -> int | None:
        """Election id of the controller that the switch preferred since, where it said so."""
        last = None
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, p4runtime_pb2.MasterArbitrationUpdate) and answer.HasField("election_id"):
                last = _election_id(answer.election_id)
        return last

    def _other_primary(self, election_id: int | None) -> DeviceError:
        named = "" if election_id is None else f" (election id {election_id})"
        return self._error(
            f"another controller is primary{named}; only it may write",
            hint="end it, or let it finish, before you push",
        )

    def _error(self, what: str, *, hint: str = "") -> DeviceError:
        return DeviceError(what, where=self._address, hint=hint)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What a message of the switch lacks or has too much is an error that names the switch."""
        try:
            yield
        except DeviceError as error:
            error.where = error.where or self._address
            raise


def _election_id(value: Any) -> int:
    return int(value.high) * 2**64 + int(value.low)


def _update_reasons(error: Any, updates: int) -> list[str | None]:
    """Why each update of a batch was refused (P4Runtime, 12.3); None: it took effect.

    Empty where the error says nothing of them, or speaks of another number.
    """
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            details = status_pb2.Status.FromString(value).details
            return [_update_reason(detail) for detail in details] if len(details) == updates else []
    return []


def _update_reason(detail: Any) -> str | None:
    update_error = p4runtime_pb2.Error()
    if not detail.Unpack(update_error):
        return "an error that is not P4Runtime's"
    if update_error.canonical_code == code_pb2.OK:
        return None
    known = code_pb2.Code.DESCRIPTOR.values_by_number.get(update_error.canonical_code)
    name = str(update_error.canonical_code) if known is None else known.name
    return f"{update_error.message or 'no reason given'} ({name})"
