"""Cumulus Linux as the laws see it: a revision takes effect as a whole."""

import copy
from collections.abc import Mapping

from hypothesis import strategies as st

from mltswitch.targets import Change, Step, SwitchState
from mltswitch.targets.cumulus import TARGET
from switchsim.cumulus_tree import leaves
from tests.targets.cumulus.device import run, undo
from tests.targets.under_test import Enter, SwitchUnderTest

OURS = ("mapping", "egress-scheduler", "congestion-control", "egress-shaper")


class CumulusUnderTest(SwitchUnderTest):
    """A switch that is configured by `nv`."""

    target = TARGET
    ports = 16
    settings_of_others = (
        "nv set interface swp15-16 qos mapping profile theirs",
        "nv set interface swp1 description uplink",
        "nv set qos mapping theirs trust both",
        "nv set qos mapping default-global trust l3",
        "nv set qos egress-scheduler default-global traffic-class 0-7 mode strict",
        "nv set qos congestion-control default-global traffic-class 3 red enable",
        "nv set qos egress-queue-mapping default-global switch-priority 3 traffic-class 1",
        "nv set qos pfc lossless switch-priority 3",
        "nv set interface swp16 qos pfc profile lossless",
        "nv set qos egress-shaper theirs traffic-class 0 max-rate 1000",
        "nv set interface swp16 qos egress-shaper profile theirs",
        "nv set acl theirs type ipv4",
        "nv set acl theirs rule 10 action set dscp 46",
        "nv set interface swp15 acl theirs inbound",
        "nv set interface swp1-2 acl theirs inbound control-plane",
        "nv set vrf default router static 192.0.2.0/24 via 10.9.9.9",
        "nv set vrf red router static 10.0.0.0/8 via 10.9.9.9",
        "nv set vrf default router static 2001:db8::/32 via blackhole",
        "nv config apply -y",
    )
    is_atomic = True
    restores_after_others = False

    def ask(self, query: str) -> str:
        result = self.device.execute("cumulus", query)
        assert result.status == 0, result
        return str(result.stdout.decode())

    def entering(self) -> Enter:
        def enter(step: Step) -> None:
            run(self.device, step.command)

        return enter

    def paste(self, files: Mapping[str, str], name: str) -> None:
        if name.endswith(".txt"):
            self.configure(*(line for line in files[name].split("\n") if line and not line.startswith("#")))
        else:
            assert self.device.execute("cumulus", "tee /tmp/mltswitch.yaml", files[name].encode).status == 0
            self.configure("nv config patch /tmp/mltswitch.yaml")
        self.configure("nv config apply -y")

    def configuration(self) -> object:
        return copy.deepcopy(self.device.applied)

    def is_saved(self) -> bool:
        return self.device.saved == self.device.applied and self.device.revisions.pending is None

    def objects(self) -> object:
        return {path: value for path, value in leaves(self.device.applied) if path[0] in {"acl", "qos"}}

    def others(self, wanted: SwitchState) -> object:
        return {path: value for path, value in leaves(self.device.applied) if not _is_owned(path, wanted)}

    def disturb(self, data: st.DataObject, wanted: SwitchState) -> None:
        on_our_ports = (
            "nv set interface swp1-4 qos mapping profile theirs",
            "nv set interface swp2 qos egress-shaper profile theirs",
            "nv set qos egress-queue-mapping default-global switch-priority 5 traffic-class 2",
        )
        self.configure(*self.settings_of_others[:-1], *on_our_ports[: data.draw(st.integers(0, 3))])
        for route in wanted.routes:
            if data.draw(st.booleans()):
                self.configure(f"nv set vrf default router static {route.prefix} via 10.9.9.9")
        self.configure("nv config apply -y", "nv config save")

    def undo(self, change: Change) -> None:
        undo(self.device, change)


def _is_owned(path: tuple[str, ...], wanted: SwitchState) -> bool:
    ports = {port.name for port in wanted.ports}
    match path:
        case ("qos", kind, name, *_) if kind in OURS:
            return name == "mlt" or name.startswith("mlt-")
        case ("acl", name, *_):
            return name.startswith("mlt-")
        case ("interface", name, "acl", acl, *_):
            return name in ports and acl.startswith("mlt-")
        case ("interface", name, "qos", kind, *_) if kind in OURS:
            return name in ports
        case ("vrf", "default", "router", "static", prefix, *_):
            return prefix.startswith("10.")
        case _:
            return False
