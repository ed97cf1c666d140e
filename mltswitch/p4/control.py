"""A BMv2 switch over P4Runtime: load a program, write lines, read everything back as lines.

The lines are those of `mltswitch.p4.entries`. A switch takes one program at a time; entries added behind
P4Runtime's back, by BMv2's own CLI, make its P4Runtime server refuse every read of that table.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from mltswitch.errors import DeviceError, MachineError, UserInputError
from mltswitch.p4.entries import BatchRefusedError, EntryChange, format_change, parse_lines, sort_key
from mltswitch.p4.program import CPU_PORT, PORTS, QUEUES_PER_PORT, Program, refusal_reasons
from mltswitch.p4.schema import Schema

if TYPE_CHECKING:
    from mltswitch.p4.connection import Connection
    from mltswitch.p4.messages import PacketIn

TIMEOUT_SECONDS: Final = 10.0
"""For one answer of the switch; the largest takes some tenths of a second."""
BATCH_LINES: Final = 50
"""Of one WriteRequest. More make it no faster (1,000 entries in 0.4 s), and a refusal harder to undo."""
MAXIMUM_PATH_BYTES: Final = 107
"""Of a Unix socket (unix(7))."""
_ADDRESS: Final = re.compile(
    r"unix:(?P<path>/[^\0\s]+)|(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\]):(?P<port>[0-9]{1,5})"
)
QUEUE_TABLE: Final = "queues"
"""Whose entries are the queues that packets can join."""
REFUSAL_COUNTER: Final = "refused"
DECISION_COUNTER: Final = "decisions"


@dataclass(frozen=True, slots=True)
class Count:
    """One cell of a counter."""

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
        """All of them."""
        cells = [getattr(self, field.name) for field in fields(self)]
        return Count(sum(cell.packets for cell in cells), sum(cell.bytes for cell in cells))


DECISIONS: Final = len(fields(QueueCounters))


class Switch:
    """An open session with one switch; every method raises DeviceError naming its address."""

    def __init__(self, connection: "Connection", address: str) -> None:
        self._connection = connection
        self._address = address
        self._known_schema: Schema | None = None

    def cookie(self) -> int | None:
        """Of the program that the switch runs; None where it runs none, or one loaded without a cookie."""
        return self._connection.cookie()

    def load(self, program: Program) -> None:
        """Make the switch run a program, with all tables empty and all counters 0."""
        self._known_schema = self._connection.load(program)

    def write(self, lines: Sequence[str]) -> None:
        """Carry out lines in order.

        The switch applies a batch entry by entry and goes on behind one that it refuses; the error says
        how many took effect.

        Raises:
            UserInputError: a line is not of the language, or not of the switch's program; nothing was sent.
            DeviceError: the switch refused a line, which is named.
        """
        changes = parse_lines(lines, self._schema())
        for first in range(0, len(changes), BATCH_LINES):
            try:
                self._connection.write(changes[first : first + BATCH_LINES])
            except BatchRefusedError as error:
                raise self._refusal(lines, first, error.reasons) from None
            except DeviceError as error:
                if first:
                    error.what += f"; the first {first} of {len(lines)} lines took effect"
                raise

    def entries(self) -> tuple[str, ...]:
        """Every entry of every table as its `table_add` line, by table and key."""
        return tuple(map(format_change, sorted(self._entries(), key=sort_key)))

    def meters(self) -> tuple[str, ...]:
        """Every meter cell that has rates as its `meter_set_rates` line, by meter and index."""
        with self._named():
            found = self._connection.meters(self._schema())
        return tuple(map(format_change, sorted(found, key=lambda meter: (meter.meter.name, meter.index))))

    def counters(self) -> Mapping[tuple[int, int], QueueCounters]:
        """(port, queue) → its counters, for every queue that has an entry in the table `queues`."""
        places = sorted(
            (entry.key[0].value, entry.key[1].value)
            for entry in self._entries()
            if entry.table.name == QUEUE_TABLE
        )
        cells = self._cells(
            [
                (DECISION_COUNTER, (port * QUEUES_PER_PORT + queue) * DECISIONS + decision)
                for port, queue in places
                for decision in range(DECISIONS)
            ]
        )
        return {
            place: QueueCounters(*cells[first : first + DECISIONS])
            for place, first in zip(places, range(0, len(cells), DECISIONS), strict=True)
        }

    def refusals(self) -> Mapping[str, int]:
        """Why packets were refused before they reached a queue → how many, since the program was loaded."""
        reasons = refusal_reasons()
        cells = self._cells([(REFUSAL_COUNTER, index) for index in reasons])
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
        if not self._connection.is_primary:
            raise DeviceError("takes frames from its primary controller alone", where=self._address)
        self._connection.packet_out(frame, port)

    def packets_in(self) -> "tuple[PacketIn, ...]":
        """What the switch could not forward since the last call; only its primary gets it, to answer it."""
        return self._connection.packets_in()

    def _schema(self) -> Schema:
        """Of the program that the switch runs."""
        if self._known_schema is None:
            self._known_schema = self._connection.schema()
        if self._known_schema is None:
            raise DeviceError("runs no P4 program", where=self._address, hint="a push loads it first")
        return self._known_schema

    def _refusal(self, lines: Sequence[str], first: int, reasons: Sequence[str | None]) -> DeviceError:
        refused = next(index for index, reason in enumerate(reasons) if reason is not None)
        applied = first + reasons.count(None)
        return DeviceError(
            f"refuses line {first + refused + 1} of {len(lines)}, {lines[first + refused]!r}: "
            f"{reasons[refused]}; {applied} of {len(lines)} lines took effect",
            where=self._address,
        )

    def _entries(self) -> list[EntryChange]:
        with self._named():
            return self._connection.entries(self._schema())

    def _cells(self, places: Sequence[tuple[str, int]]) -> list[Count]:
        """(counter, index) → its cell, in the order asked for."""
        counters = self._schema().counters
        for name, _ in places:
            if name not in counters:
                raise DeviceError(
                    f"runs another P4 program, without the counter {name!r}",
                    where=self._address,
                    hint="a push loads ours",
                )
        wanted = [(counters[name].identifier, index) for name, index in places]
        found = self._connection.counter_cells(wanted)
        if not found.keys() >= set(wanted):
            raise DeviceError("did not return all counters", where=self._address)
        return [Count(*found[place]) for place in wanted]

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What a message of the switch lacks or has too much is an error that names the switch."""
        try:
            yield
        except DeviceError as error:
            error.where = error.where or self._address
            raise


@contextmanager
def open_switch(
    address: str,
    *,
    device_id: int,
    election_id: int = 1,
    primary: bool = True,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Iterator[Switch]:
    """A switch at `host:port` or `unix:/path`: as the controller that may write, or else as a reader.

    Raises:
        UserInputError: the address is none.
        MachineError: p4runtime-shell is not installed.
        DeviceError: it cannot be reached, or another controller with at least this election id is primary.
    """
    _check(address)
    connection = _connect(address, device_id, election_id, timeout_seconds)
    try:
        if primary:
            connection.become_primary()
        yield Switch(connection, address)
    finally:
        connection.tear_down()


def _check(address: str) -> None:
    """gRPC guesses a missing port, takes 99999 for 34463, and prints what it makes nothing of."""
    place = _ADDRESS.fullmatch(address)
    if (
        place is None
        or int(place["port"] or 1) not in range(1, 2**16)
        or len((place["path"] or "").encode()) > MAXIMUM_PATH_BYTES
    ):
        raise UserInputError(
            f"is no address of a P4Runtime server: {address!r}",
            expected=f"host:port, [IPv6]:port or unix:/path of at most {MAXIMUM_PATH_BYTES} bytes",
        )


def _connect(address: str, device_id: int, election_id: int, timeout_seconds: float) -> "Connection":
    try:
        from mltswitch.p4.connection import Connection  # noqa: PLC0415  (an optional package)
    except ImportError as error:
        raise MachineError(
            f"P4Runtime needs the package p4runtime-shell, which cannot be imported: {error}",
            hint="`pip install 'mltswitch[p4]'`",
        ) from None
    return Connection(address, device_id=device_id, election_id=election_id, timeout_seconds=timeout_seconds)
