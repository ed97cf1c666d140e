"""One connection to a P4Runtime server: arbitration, deadlines, and clear errors (P4Runtime 1.3, chapter 5).

p4runtime-shell's client is made for its own prompt: it prints, logs, ends the process where a handshake
fails, waits for ever for a switch that says nothing, keeps a program alive by a thread of its own, and its
reader of write errors never ends where a batch failed behind an entry that was accepted. What is used of it
is the client's identity and the generated protocol; all that waits is here.
"""

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import grpc
from google.rpc import code_pb2, status_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc
from p4runtime_sh.p4runtime import P4RuntimeClient

from mltswitch.errors import DeviceError
from mltswitch.p4 import messages
from mltswitch.p4.entries import BatchRefusedError, Change, EntryChange, MeterChange
from mltswitch.p4.program import Program
from mltswitch.p4.schema import Schema

CHANNEL_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),  # a switch is never behind a web proxy
    ("grpc.max_receive_message_length", 64 * 2**20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),  # a switch that was dead a moment ago is tried again at once
)
MAXIMUM_PACKETS_IN: Final = 1000
"""More than so many unread ones push out the oldest."""
END_SECONDS: Final = 5.0
"""How long a switch may take to confirm that we have left; then we leave without."""
_DETAILS_KEY: Final = "grpc-status-details-bin"
_MAXIMUM_QUOTED_CHARACTERS: Final = 300


class Connection(P4RuntimeClient):  # type: ignore[misc]  # it has no types
    """One controller's way to one device; every method raises DeviceError naming the address."""

    channel: grpc.Channel

    def __init__(self, address: str, *, device_id: int, election_id: int, timeout_seconds: float) -> None:
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._packets: deque[messages.PacketIn] = deque(maxlen=MAXIMUM_PACKETS_IN)
        self._receiver: threading.Thread | None = None
        high, low = divmod(election_id, 2**64)
        super().__init__(device_id, address, (high, low))

    def set_up_stream(self) -> None:
        """Called as the last step of making the client: our own channel, and no arbitration yet."""
        self.channel.close()
        self.channel = grpc.insecure_channel(self._address, options=CHANNEL_OPTIONS)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)

    def become_primary(self) -> None:
        """Ask to be the one controller that may write; raises DeviceError where another one is."""
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
            raise self._arbitration_error(answer)
        if answer is None:
            raise self._error("ended the session at its beginning")
        if answer.status.code != code_pb2.OK:
            raise self._other_primary(_election_id(answer.election_id))

    def tear_down(self) -> None:
        """Leave, and wait until the switch knows: the same election id can be used again at once."""
        if self._receiver is not None:
            self._outgoing.put(None)
            self._receiver.join(min(END_SECONDS, self._timeout_seconds))
            self.stream.cancel()
            self._receiver.join(END_SECONDS)
        self.channel.close()

    @property
    def is_primary(self) -> bool:
        """Whether this is the controller that may write, and that packets go to."""
        return self._receiver is not None

    def packet_out(self, frame: bytes, port: int) -> None:
        """Have the switch send a frame by a port."""
        request = p4runtime_pb2.StreamMessageRequest()
        messages.fill_packet_out(request.packet, frame, port)
        self._outgoing.put(request)

    def packets_in(self) -> tuple[messages.PacketIn, ...]:
        """What the switch has sent since the last call."""
        found = [self._packets.popleft() for _ in range(len(self._packets))]
        return tuple(found)

    def cookie(self) -> int | None:
        """Of the program that the switch runs; None where there is none."""
        config = self._pipeline(p4runtime_pb2.GetForwardingPipelineConfigRequest.COOKIE_ONLY)
        return int(config.cookie.cookie) if config is not None and config.HasField("cookie") else None

    def schema(self) -> Schema | None:
        """Of the program that the switch runs; None where there is none."""
        config = self._pipeline(p4runtime_pb2.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE)
        return messages.schema_of(config.p4info) if config is not None and config.HasField("p4info") else None

    def load(self, program: Program) -> Schema:
        """Make the switch run a program; tables, counters and registers begin empty."""
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(
            device_id=self.device_id,
            action=p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=messages.pipeline_config(program),
        )
        self._identify(request)
        try:
            self.stub.SetForwardingPipelineConfig(request, timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            failure = self._rpc_error("the program", error)
            if "assign device" in failure.what:  # PI's server answers for every number until it must act
                failure.hint = f"does the switch have another device id than {self.device_id}?"
            raise failure from None
        return messages.schema_of(request.config.p4info)

    def write(self, changes: Sequence[Change]) -> None:
        """Send one batch; the switch applies each change by itself, in order.

        Raises:
            BatchRefusedError: some were refused; all others took effect.
            DeviceError: the whole batch was refused, or there is no answer.
        """
        updates = map(messages.update_of, changes)
        request = p4runtime_pb2.WriteRequest(device_id=self.device_id, updates=updates)
        self._identify(request)
        try:
            self.stub.Write(request, timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            reasons = _update_reasons(error)
            if len(reasons) == len(changes):
                raise BatchRefusedError(reasons) from None
            raise self._rpc_error("a write", error) from None

    def entries(self, schema: Schema) -> list[EntryChange]:
        """Every entry of every table, as what would add it."""
        wanted = (messages.table_request(table) for table in schema.tables.values())
        return [messages.entry_of(entity.table_entry, schema) for entity in self._read(wanted)]

    def meters(self, schema: Schema) -> list[MeterChange]:
        """Every meter cell that has rates, as what would set them."""
        wanted = (messages.meter_request(meter) for meter in schema.meters.values())
        found = (messages.meter_of(entity.meter_entry, schema) for entity in self._read(wanted))
        return [meter for meter in found if meter is not None]

    def counter_cells(self, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
        """(counter's identifier, index) → packets and bytes."""
        wanted = (messages.counter_request(counter, index) for counter, index in places)
        return dict(messages.counter_of(entity.counter_entry) for entity in self._read(wanted))

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
                elif message.HasField("packet"):
                    self._packets.append(messages.packet_in_of(message.packet))
            self._answers.put(None)
        except grpc.RpcError as error:
            self._answers.put(error)

    def _arbitration_error(self, error: Any) -> DeviceError:
        """PI's server refuses an election id that is in use, where others tell who is primary."""
        if error.code() == grpc.StatusCode.INVALID_ARGUMENT and "already exists" in error.details():
            return self._other_primary(self.election_id[0] * 2**64 + self.election_id[1])
        return self._rpc_error("to be controlled", error)

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


def _election_id(value: Any) -> int:
    return int(value.high) * 2**64 + int(value.low)


def _update_reasons(error: Any) -> list[str | None]:
    """One entry for each update of a batch (P4Runtime, 12.3); empty where the error says nothing of them."""
    for key, value in error.trailing_metadata() or ():
        if key != _DETAILS_KEY:
            continue
        status = status_pb2.Status.FromString(value)
        return [_update_reason(detail) for detail in status.details]
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
