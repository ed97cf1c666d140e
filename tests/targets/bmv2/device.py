"""A switch's tables as BMv2 keeps them: strict, and by the P4 program, not by the target's grammar."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from mltswitch.capabilities import Capabilities
from mltswitch.targets import Change, RunningState, Step, SwitchState
from mltswitch.targets.bmv2 import TARGET

CAPABILITIES = TARGET.hardware(None)

Bits = tuple[int, ...]
BITS: dict[str, tuple[Bits, dict[str, Bits]]] = {
    "queues": ((9, 3), {"set_limit": (32, 1, 32), "set_threshold_and_limit": (32, 32, 1, 32)}),
    "classes": ((9, 48, 6), {"set_queue": (3,), "set_queue_and_dscp": (3, 6)}),
    "ports": ((9, 48), {"trust": (), "distrust": (6,)}),
    "neighbours": ((9,), {"set_neighbour": (48, 48)}),
    "groups": ((8,), {"forward": (9,)}),
    "ipv4_routes": (
        (0,),
        {"forward": (9,), "forward_back": (9,), "share_flows": (8,), "share_packets": (8,), "discard": ()},
    ),
}
"""Table → bits of its key, and of each action's parameters, as the P4 files declare them; 0: a prefix."""
LIMITS = {"ports": 512, "neighbours": 512, "queues": 4096, "classes": 4096, "groups": 255}


class RefusedError(AssertionError):
    """The switch does not take a line."""


def number(text: str, bits: int) -> int:
    """A field's value; raises RefusedError where it does not fit."""
    if bits == 48:
        if not re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", text):
            raise RefusedError(f"{text} is no MAC address")
        return int(text.replace(":", ""), 16)
    if bits == 0:
        prefix = IPv4Network(text)
        return int(prefix.network_address) * 64 + prefix.prefixlen
    if not text.isdecimal() or int(text) >= 1 << bits:
        raise RefusedError(f"{text} does not fit {bits} bits")
    return int(text)


@dataclass
class Switch:
    """Our program runs; `lines` counts what was sent."""

    program: str = "mltswitch"
    tables: dict[str, dict[tuple[int, ...], tuple[str, tuple[int, ...], str]]] = field(
        default_factory=lambda: {name: {} for name in BITS}
    )
    meters: dict[int, tuple[float, int, float, int]] = field(default_factory=dict)
    depth: int = 64

    def enter(self, line: str) -> None:
        """One line; raises RefusedError."""
        words = line.split(" ")
        if line == "load_program":
            self.program = "mltswitch"
            self.tables = {name: {} for name in BITS}
            self.meters = {}
        elif words[0] == "set_queue_depth":
            self.depth = int(words[1])
        elif self.program != "mltswitch":
            raise RefusedError("no such table")
        elif words[0] == "meter_set_rates":
            self._set_rates(*words[1:])
        elif words[0] not in {"table_add", "table_modify_match", "table_delete_match"}:
            raise RefusedError(f"unknown command {words[0]}")
        elif words[0] == "table_delete_match":
            if self.tables[words[1]].pop(self._key(words[1], words[2:]), None) is None:
                raise RefusedError(f"no such entry: {line}")
        else:
            self._put(*words)

    def _put(self, command: str, table: str, action: str, *rest: str) -> None:
        arrow = rest.index("=>")
        key, values = self._key(table, rest[:arrow]), rest[arrow + 1 :]
        bits = BITS[table][1][action]
        if table == "groups":
            bits *= len(values)
        if len(bits) != len(values):
            raise RefusedError(f"{action} takes {len(bits)} parameters")
        parameters = tuple(number(text, width) for text, width in zip(values, bits, strict=True))
        if (key in self.tables[table]) is (command == "table_add"):
            raise RefusedError(f"{command} {table} {rest}: duplicate or absent")
        if command == "table_add" and len(self.tables[table]) >= LIMITS.get(table, 4096):
            raise RefusedError(f"{table} is full")
        text = " ".join(("table_add", table, action, *rest))
        self.tables[table][key] = action, parameters, text

    def _key(self, table: str, words: Sequence[str]) -> tuple[int, ...]:
        bits = BITS[table][0]
        if len(bits) != len(words):
            raise RefusedError(f"the key of {table} has {len(bits)} fields")
        return tuple(number(text, width) for text, width in zip(words, bits, strict=True))

    def _set_rates(self, name: str, place: str, *rates: str) -> None:
        if name != "policers" or number(place, 12) < 0 or len(rates) != 2:
            raise RefusedError("no such meter, or not two rates")
        (committed, burst), (peak, peak_burst) = (rate.split(":") for rate in rates)
        if float(committed) > float(peak):
            raise RefusedError("the committed rate lies above the peak rate")
        self.meters[int(place)] = float(committed), int(burst), float(peak), int(peak_burst)

    def answers(self) -> Mapping[str, str]:
        """As the conversation answers: rates as the P4Runtime server has them, in whole bytes a second."""
        entries = sorted(text for table in self.tables.values() for _, _, text in table.values())
        meters = []
        for place, (committed, burst, peak, peak_burst) in sorted(self.meters.items()):
            low, high = (f"{int(rate * 1e6) / 1e6:.6f}" for rate in (committed, peak))
            meters.append(f"meter_set_rates policers {place} {low}:{burst} {high}:{peak_burst}")
        if self.program != "mltswitch":
            entries, meters = [], []
        return {"pipeline": self.program, "entries": "\n".join(entries), "meters": "\n".join(meters)}

    def queue_of(self, port: int, dscp: int) -> int:
        """Where packets of a code point go that arrive at a port, whatever address it has."""
        found = [
            entry[1][0] for key, entry in self.tables["classes"].items() if (key[0], key[2]) == (port, dscp)
        ]
        return found[0] if found else 0

    def takes(self, port: int, queue: int) -> tuple[float, float, float, float]:
        """S, L, rate and burst of a queue: what is less drops more; zeros where it drops everything."""
        action, values, _ = self.tables["queues"].get((port, queue), ("", (), ""))
        if not action:
            return 0, 0, 0, 0
        *threshold, limit, policed, _ = values
        rate, burst, peak, peak_burst = self.meters.get(port * 8 + queue, (float("inf"),) * 4)
        if not policed:
            rate = burst = peak = peak_burst = float("inf")
        first = threshold[0] if threshold else float("inf")
        return first, limit, min(rate, peak), min(burst, peak_burst)


def read(switch: Switch, wanted: SwitchState, capabilities: Capabilities = CAPABILITIES) -> RunningState:
    """What the target reads."""
    return TARGET.read(switch.answers(), wanted, CAPABILITIES)


def apply(switch: Switch, change: Change | Sequence[Step]) -> None:
    """Every step in its order."""
    for step in change.steps if isinstance(change, Change) else change:
        assert not step.stdin
        switch.enter(step.command)


def rendered(switch: Switch, state: SwitchState) -> None:
    """Every rendered line, as one pastes them."""
    for line in TARGET.render(state, CAPABILITIES)["mltswitch.txt"].splitlines():
        assert line, "an empty line repeats the one before"
        if not line.startswith("#"):
            switch.enter(line)
