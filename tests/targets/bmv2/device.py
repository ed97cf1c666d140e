"""A switch's tables as BMv2 keeps them: strict, and by the compiled program, not by the target's grammar."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf import text_format
from p4.config.v1 import p4info_pb2

from mltswitch.errors import UserInputError
from mltswitch.p4.entries import VERBS, action_of, key_of, line_of, parse_line, schema_of, table_of
from mltswitch.p4.program import FOLDER, P4INFO_FILE
from mltswitch.targets import Change, RunningState, Step, SwitchState
from mltswitch.targets.bmv2 import TARGET

CAPABILITIES = TARGET.hardware(None)
SCHEMA = schema_of(text_format.Parse((FOLDER / P4INFO_FILE).read_text(), p4info_pb2.P4Info()))
INFINITE = float("inf")


class RefusedError(AssertionError):
    """The switch does not take a line."""


class Entry(NamedTuple):
    """One entry: the name of its action, its parameters, and its line."""

    action: str
    parameters: tuple[int, ...]
    line: str


def _no_entries() -> dict[str, dict[tuple[int, ...], Entry]]:
    return {name: {} for name in SCHEMA.tables}


@dataclass
class Switch:
    """By default our program runs, with empty tables."""

    program: str = "mltswitch"
    tables: dict[str, dict[tuple[int, ...], Entry]] = field(default_factory=_no_entries)
    """Table → key, a prefix with its length → entry."""
    meters: dict[int, Any] = field(default_factory=dict)
    """Index → the entity that sets it."""
    depth: int = 64

    def enter(self, *lines: str) -> None:
        """Each line in turn; raises RefusedError."""
        for line in lines:
            if line == "load_program":
                self.program, self.tables, self.meters = "mltswitch", _no_entries(), {}
            elif line.startswith("set_queue_depth "):
                self.depth = int(line.split(" ")[1])
            elif self.program != "mltswitch":
                raise RefusedError("no such table")
            else:
                self._enter(line)

    def _enter(self, line: str) -> None:
        try:
            update = parse_line(line, SCHEMA)
        except UserInputError as error:
            raise RefusedError(error.what) from None
        entity, entry = update.entity, update.entity.table_entry
        if entity.HasField("meter_entry"):
            self.meters[entity.meter_entry.index.index] = entity
            return
        definition, is_add = table_of(entry, SCHEMA), update.type == VERBS["table_add"]
        name = definition.preamble.alias
        table, is_route = self.tables[name], "routes" in name
        key = tuple(number for match in key_of(entry, definition) for number in match[: 1 + is_route])
        if (key in table) is is_add:
            raise RefusedError(f"{line}: duplicate or absent")
        if update.type == VERBS["table_delete_match"]:
            del table[key]
        elif is_add and len(table) >= definition.size:
            raise RefusedError(f"{name} is full")
        else:
            action, parameters = action_of(entry, SCHEMA)
            table[key] = Entry(action.preamble.alias, parameters, line_of(entity, SCHEMA))

    def answers(self) -> Mapping[str, str]:
        """As the session answers; nothing of another program."""
        entries = sorted(entry.line for table in self.tables.values() for entry in table.values())
        meters = [line_of(self.meters[index], SCHEMA) for index in sorted(self.meters)]
        if self.program != "mltswitch":
            entries, meters = [], []
        return {"pipeline": self.program, "entries": "\n".join(entries), "meters": "\n".join(meters)}

    def queue_of(self, port: int, dscp: int) -> int:
        """Where packets of a code point go that arrive at a port, whatever address it has."""
        classes = self.tables["classes"].items()
        return next((entry.parameters[0] for key, entry in classes if key[::2] == (port, dscp)), 0)

    def takes(self, port: int, queue: int) -> tuple[float, float, float, float]:
        """S, L, rate and burst of a queue: what is less drops more; zeros where it drops everything."""
        entry = self.tables["queues"].get((port, queue))
        if entry is None:
            return 0, 0, 0, 0
        *threshold, limit, policed, _ = entry.parameters
        meter = self.meters.get(port * 8 + queue) if policed else None
        config = meter and meter.meter_entry.config
        return (
            threshold[0] if threshold else INFINITE,
            limit,
            min(config.cir, config.pir) if config else INFINITE,
            min(config.cburst, config.pburst) if config else INFINITE,
        )


def read(switch: Switch, wanted: SwitchState) -> RunningState:
    """What the target reads."""
    return TARGET.read(switch.answers(), wanted, CAPABILITIES)


def diff(switch: Switch, wanted: SwitchState) -> Change:
    """What the target would send."""
    return TARGET.diff(read(switch, wanted), wanted, CAPABILITIES)


def apply(switch: Switch, steps: Iterable[Step]) -> None:
    """Every step in its order."""
    switch.enter(*(step.command for step in steps))


def push(switch: Switch, wanted: SwitchState) -> Switch:
    """The same switch, with what a push of this state leaves there."""
    apply(switch, diff(switch, wanted).steps)
    return switch


def rendered(state: SwitchState) -> Switch:
    """A switch into which somebody pasted the rendered lines."""
    switch = Switch()
    lines = TARGET.render(state, CAPABILITIES)["mltswitch.txt"].splitlines()
    assert all(lines), "an empty line repeats the one before"
    switch.enter(*(line for line in lines if not line.startswith("#")))
    return switch
