"""Enterprise SONiC as the laws see it: every line takes effect at once, on objects that ports share."""

from collections.abc import Mapping
from itertools import product

from hypothesis import strategies as st

from mltswitch.targets import SwitchState
from mltswitch.targets.dell_sonic import TARGET
from mltswitch.targets.dell_sonic.capabilities import BOX_CHIPS
from switchsim.dell_sonic import DellSonicDevice
from switchsim.settings import Facts
from tests.targets.dell_sonic.device import lines_of, routes_of
from tests.targets.under_test import NEVER, Lot, SwitchUnderTest

UNNAMED, FAIR, WEIGHTED, STRICT = range(4)
"""How a queue is served: by a policy that does not name it; by no policy; by weight; by priority."""
OURS = ("qos-map dscp-tc", "qos-map tc-queue", "scheduler-policy", "queue ", "service-policy type qos in")


class DellSonicUnderTest(SwitchUnderTest):
    """A Dell switch."""

    target = TARGET
    shows = ("sonic-cli",)
    settings_of_others = (
        *(
            "qos wred-policy theirs",
            "green minimum-threshold 7 maximum-threshold 9 drop-probability 5",
            "exit",
        ),
        *("qos map dscp-tc theirs", "dscp 7 traffic-class 3", "exit"),
        *("interface Eth1/8", "qos-map dscp-tc theirs", "queue 3 wred-policy theirs", "exit"),
        "ip route 192.0.2.0/24 10.9.9.9",
    )

    spares_from_anything = True
    spared_on_the_way_back = 2

    def delivered(self) -> DellSonicDevice:
        device = DellSonicDevice(ports=self.ports)
        device.box = next(box for box, chip in BOX_CHIPS.items() if chip == self.capabilities.hardware)
        return device

    def configuration(self) -> object:
        return self.device.configuration

    def is_saved(self) -> bool:
        return bool(self.device.saved == self.device.configuration)

    def objects(self) -> object:
        facts = self.device.configuration.items()
        return {f: value for f, value in facts if f[0] and not f[0].startswith("interface ")}

    def others(self, wanted: SwitchState) -> object:
        running: Facts = self.device.configuration
        ports = {f"interface {port.name}" for port in wanted.ports}
        blocks = {
            head: [line for line in lines_of(running, head) if head not in ports or not line.startswith(OURS)]
            for head in running.blocks
            if head and "mltswitch" not in head and "\n" not in head
        }
        return blocks, {route for route in routes_of(running) if not str(route[2]).startswith("10.")}

    def lots(self, names: list[str], queues: frozenset[int]) -> list[Lot]:
        """Kilobytes above which a packet is dropped if it is not ECN-capable, and if it is; how its queue is
        served; and the rate at which, in kbit/s."""
        running: Facts = self.device.configuration
        ports = [_bound(running, name) for name in names]
        reaches = {head: _reach(running, head) for head in running.heads("qos wred-policy")}
        queue_of = {
            (number, dscp): classes.get(traffic_class, traffic_class)
            for number, entrance in enumerate(ports)
            for classes in [_entries(running, entrance, "tc-queue")]
            for dscps in [_entries(running, entrance, "dscp-tc")]
            for dscp in range(64)
            for traffic_class in [dscps.get(dscp, 0)]
        }
        lot = {}
        for (number, leaving), queue in product(enumerate(ports), {*queue_of.values()}):
            curve = leaving.get(f"queue {queue} wred-policy") if queue in queues else None
            lost = reaches[f"qos wred-policy {curve}"] if curve else (NEVER, NEVER)
            lot[number, queue] = (*lost, *_service(running, leaving.get("scheduler-policy", ""), queue))
        return [lot[number, queue] for queue in queue_of.values() for number in range(len(ports))]

    def disturb(self, data: st.DataObject, wanted: SwitchState) -> None:
        """Objects of anybody on the ports, objects of ours that somebody has changed, and routes."""
        if data.draw(st.booleans(), "objects of others"):
            self.configure(*data.draw(foreign_lines()))
        if data.draw(st.booleans(), "objects of ours"):
            self._alter_objects_of_ours(data)
        for route in data.draw(st.lists(st.sampled_from([*wanted.routes, None]), max_size=3)):
            if route is not None:
                ways = ("blackhole", "blackhole 9", f"{route.next_hop} tag 5 7", "10.9.9.9 3", "10.9.9.9")
                self.configure(f"ip route {route.prefix} {data.draw(st.sampled_from(ways))}")

    def _alter_objects_of_ours(self, data: st.DataObject) -> None:
        enter, heads = self.device.configure, self.device.configuration.heads
        curve = "green minimum-threshold 7 maximum-threshold 9 drop-probability 50"
        for head in heads("qos wred-policy"):
            enter(head, *data.draw(st.sets(st.sampled_from(["ecn none", "no ecn", curve]))))
        for head in heads("qos scheduler-policy"):
            words = st.sampled_from(["type strict", "type dwrr", "pir 400000", "no pir"])
            queue = data.draw(st.integers(0, 7))
            enter(head, f"queue {queue}", "type strict", *data.draw(st.sets(words)))
            if data.draw(st.booleans()):
                enter(head, "port", "pir 9000")
        for kind, word, of in (("dscp-tc", "dscp", "traffic-class"), ("tc-queue", "traffic-class", "queue")):
            for head in heads(f"qos map {kind}"):
                enter(head, *data.draw(st.sets(st.sampled_from([f"{word} 3 {of} 2", f"no {word} 5"]))))


@st.composite
def foreign_lines(draw: st.DrawFn) -> list[str]:
    """What somebody may have bound on a port: maps, thresholds on any queue, with and without marking."""
    queues, thresholds = st.integers(0, 7), st.integers(1, 12_480)
    lines: list[str] = []
    for name in ("A", "B"):
        low, high = sorted(draw(st.tuples(thresholds, thresholds)))
        lines += [
            f"qos wred-policy {name}",
            f"green minimum-threshold {low} maximum-threshold {high} drop-probability 100",
            *(f"ecn {draw(st.sampled_from(['none', 'green', 'all']))}", "exit"),
            f"qos map dscp-tc {name}",
            *(f"dscp {first}-{first + 15} traffic-class {draw(queues)}" for first in (0, 16, 32, 48)),
            "exit",
            f"qos map tc-queue {name}",
            *(f"traffic-class {number} queue {draw(queues)}" for number in range(8)),
            "exit",
            f"qos scheduler-policy {name}",
        ]
        for queue in draw(st.sets(queues, min_size=1)):
            lines += [f"queue {queue}", draw(st.sampled_from(["type strict", "type dwrr"]))]
            lines += draw(st.sampled_from([[], ["pir 900000"], ["pir 40000000"], ["pir 70000", "cir 50000"]]))
            lines.append("exit")
        lines.append("exit")
    for port in range(1, 5):
        lines.append(f"interface Eth1/{port}")
        for words in ("qos-map dscp-tc", "qos-map tc-queue", "scheduler-policy"):
            lines += draw(st.sampled_from([[], [f"{words} A"], [f"{words} B"]]))
        for queue in range(8):
            lines += draw(st.sampled_from([[], [f"queue {queue} wred-policy {draw(st.sampled_from('AB'))}"]]))
        lines.append("exit")
    return lines


def _bound(running: Facts, port: str) -> dict[str, str]:
    """The words before the name in each line of a port → the name."""
    lines = (line.rpartition(" ") for line in lines_of(running, f"interface {port}"))
    return {words: name for words, _, name in lines}


def _entries(running: Facts, port: Mapping[str, str], kind: str) -> Mapping[int, int]:
    head = f"qos map {kind} {port.get(f'qos-map {kind}')}"
    return {fact[2]: target for fact, target in running.items() if fact[:2] == (head, "entry")}


def _reach(running: Facts, head: str) -> tuple[int, int]:
    lines = [line.split(" ") for line in lines_of(running, head)]
    least = next((int(line[2]) for line in lines if line[0] == "green"), NEVER)
    return least, NEVER if lines[-1:] in ([["ecn", "green"]], [["ecn", "all"]]) else least


def _service(running: Facts, policy: str, queue: int) -> tuple[int, int]:
    if not policy:
        return FAIR, NEVER
    lines = lines_of(running, f"qos scheduler-policy {policy}", f"queue {queue}")
    said = dict(line.split(" ") for line in lines)
    return {"": UNNAMED, "strict": STRICT}.get(said.get("type", ""), WEIGHTED), int(said.get("pir", NEVER))
