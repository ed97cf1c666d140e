"""BMv2 as the laws see it: entries of tables, each of which takes effect at once; nothing is saved."""

from collections.abc import Mapping
from contextlib import suppress

from hypothesis import strategies as st

from mltswitch.targets import SwitchState
from mltswitch.targets.bmv2 import TARGET
from mltswitch.targets.bmv2.ports import port_number
from tests.targets.bmv2.device import RefusedError, Switch
from tests.targets.under_test import Enter, Lot, SwitchUnderTest

FOREIGN = (
    "table_add ipv4_routes share_flows 192.168.0.0/16 => 1",
    "table_add groups forward 1 => 300 301",
    "table_add queues set_limit 1 4 => 1000 0 1514",
    "table_add ports trust 1 02:00:00:00:00:02 =>",
    "table_add classes set_queue 1 02:00:00:00:00:02 34 => 4",
    "meter_set_rates policers 12 0.5:2000 0.5:2000",
    "table_add ipv4_routes forward 10.0.0.0/30 => 2",
)
"""Entries of which a push changes some."""


class Bmv2UnderTest(SwitchUnderTest):
    """The tables of our program on simple_switch_grpc."""

    target = TARGET
    settings_of_others = (
        "table_add queues set_limit 300 4 => 1000 0 1514",
        "table_add ports trust 300 02:00:00:00:00:02 =>",
        "table_add classes set_queue 300 02:00:00:00:00:02 34 => 4",
        "table_add ipv4_routes share_flows 192.168.0.0/16 => 7",
        "table_add groups forward 7 => 300 301",
        "table_add neighbours set_neighbour 300 => 02:00:00:00:00:02 02:00:00:00:00:01",
    )
    restores_after_others = False
    spared_on_the_way_back = 0
    device: Switch

    def delivered(self) -> Switch:
        return Switch()

    def ask(self, query: str) -> str:
        return self.device.answers()[query]

    def entering(self) -> Enter:
        return lambda step: self.device.enter(step.command)

    def paste(self, files: Mapping[str, str], name: str) -> None:
        lines = files[name].splitlines()
        assert "" not in lines, "an empty line repeats the one before"
        self.configure(*(line for line in lines if not line.startswith("#")))

    def configuration(self) -> object:
        """Meters stay where their queues are gone, and groups have any numbers."""
        return self.device.answers()["entries"]

    def marker(self) -> object:
        return object()

    def is_saved(self) -> bool:
        return True

    def others(self, wanted: SwitchState) -> object:
        return {*self.settings_of_others} & {*self.device.answers()["entries"].splitlines()}

    def lots(self, names: list[str], queues: frozenset[int]) -> list[Lot]:
        """S, L, rate and burst."""
        del queues
        ports = [port_number(name) for name in names]
        return [
            self.device.takes(leaving, self.device.queue_of(entrance, dscp))
            for entrance in ports
            for leaving in ports
            for dscp in range(64)
        ]

    def levels(self, names: list[str]) -> list[list[int]]:
        """The way out does not matter."""
        return [
            [self.device.queue_of(port_number(name), dscp) for dscp in range(64)]
            for name in names
            for _ in names
        ]

    def disturb(self, data: st.DataObject, wanted: SwitchState) -> None:
        for line in FOREIGN:
            with suppress(RefusedError):  # a plan has such an entry already
                self.configure(line)

    def disorder(self, data: st.DataObject, wanted: SwitchState) -> None:
        """Classes as somebody else might leave them."""
        for port in wanted.ports:
            number, address = port_number(port.name), port.hardware_address
            for dscp in data.draw(st.lists(st.integers(0, 63), max_size=4, unique=True)):
                there = {key[::2] for key in self.device.tables["classes"]}
                verb = "table_modify_match" if (number, dscp) in there else "table_add"
                queue = data.draw(st.integers(0, 7))
                self.device.enter(f"{verb} classes set_queue {number} {address} {dscp} => {queue}")
