"""Onyx as the laws see it: every line takes effect at once."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from hypothesis import strategies as st

from mltswitch.targets import SwitchState
from mltswitch.targets.onyx import TARGET
from switchsim.settings import Fact, Facts
from tests.targets.under_test import NEVER, Lot, SwitchUnderTest

NUMBERS = st.integers(0, 7)
THRESHOLDS = st.tuples(st.integers(1, 100), st.integers(1, 100)).map(sorted)
OURS = {"trust", "rewrite-dscp", "switch-priority", "traffic-class", "congestion-control", "scheduling"}


class OnyxUnderTest(SwitchUnderTest):
    """A Mellanox switch."""

    target = TARGET
    settings_of_others = (
        "interface ethernet 1/8 qos trust both",
        "interface ethernet 1/8 traffic-class 3 dcb ets strict",
        "interface ethernet 1/1 mtu 9000 force",
        "ip route vrf default 192.0.2.0/24 192.0.2.9",
    )

    def paste(self, files: Mapping[str, str], name: str) -> None:
        lines = files[name].splitlines()
        self.configure(*(line for line in lines if line and not line.startswith("##")))

    def configuration(self) -> dict[Fact, Any]:
        """Whether prefix modes were on, the switch does not show."""
        return _shown(self.device.configuration)

    def is_saved(self) -> bool:
        return _shown(self.device.saved) == self.configuration()

    def others(self, wanted: SwitchState) -> object:
        names = {port.name for port in wanted.ports}
        ours = {("", "route", *key) for _, what, *key in self.configuration() if what == "route"}
        ours = {fact for fact in ours if str(fact[2]).startswith("10.")}
        return {
            fact: value
            for fact, value in self.configuration().items()
            if fact not in ours and not (fact[0] in names and fact[1] in OURS)
        }

    def _class_of(self, entrance: str, leaving: str, dscp: int) -> int:
        fact = self.device.fact
        priority = fact(entrance, "switch-priority", dscp) if fact(entrance, "trust") == "L3" else 0
        number: int = fact(leaving, "traffic-class", priority)
        return number

    def lots(self, names: list[str], queues: frozenset[int]) -> list[Lot]:
        del queues
        controls = (
            self.device.fact(leaving, "congestion-control", self._class_of(entrance, leaving, dscp))
            for leaving, entrance in product(names, names)
            for dscp in range(64)
        )
        return [(NEVER if control is None else control[2],) for control in controls]

    def levels(self, names: list[str]) -> list[list[int]]:
        """The number of a strict class, from 1; the others share what is left, by weight or in turn."""
        ways = product(names, names)
        return [[self._rank(entrance, leaving, dscp) for dscp in range(64)] for entrance, leaving in ways]

    def _rank(self, entrance: str, leaving: str, dscp: int) -> int:
        number = self._class_of(entrance, leaving, dscp)
        return number + 1 if self.device.fact(leaving, "scheduling", number) == "strict" else 0

    def start(self, data: st.DataObject) -> None:
        """As delivered, and as whoever has only switched trust on leaves it."""
        trust = data.draw(st.sampled_from(["L2", "L3"]), "trust")
        self.configure(f"interface ethernet 1/1-1/{self.ports} qos trust {trust}")

    def disturb(self, data: st.DataObject, wanted: SwitchState) -> None:
        draw = data.draw
        lines: list[str] = []
        for port in draw(st.lists(st.sampled_from(wanted.ports), unique=True)):
            mode, (low, high) = draw(st.sampled_from(["absolute", "relative"])), draw(THRESHOLDS)
            control = draw(st.sampled_from(["red", "ecn", "both"]))
            words = [
                f"qos trust {draw(st.sampled_from(['L2', 'L3', 'both', 'port']))}",
                "qos rewrite dscp",
                "bandwidth shape 10G",
                f"qos map dscp {draw(st.integers(0, 63))} to switch-priority {draw(NUMBERS)}",
                f"traffic-class {draw(NUMBERS)} bind switch-priority {draw(NUMBERS)}",
                f"traffic-class {draw(NUMBERS)} dcb ets wrr {draw(st.integers(1, 100))}",
                f"traffic-class {draw(NUMBERS)} dcb ets strict",
                f"traffic-class {draw(NUMBERS)} congestion-control {control} "
                f"minimum-{mode} {low} maximum-{mode} {high}",
            ]
            chosen = draw(st.lists(st.sampled_from(words)))
            lines += (f"interface ethernet {port.name} {each}" for each in chosen)
        for route in draw(st.lists(st.sampled_from([*wanted.routes, None]), unique=True, max_size=3)):
            hop, distance = draw(st.sampled_from(["192.0.2.1", "null0"])), draw(st.sampled_from(["", " 7"]))
            lines += [f"ip route vrf default {route.prefix} {hop}{distance}"] if route else []
        self.configure(*lines)


def _shown(configuration: Facts) -> dict[Any, Any]:
    return {fact: value for fact, value in configuration.items() if fact != ("", "prefix-modes")}
