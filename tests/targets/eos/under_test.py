"""EOS as the laws see it: a config session commits all lines at once, and they are safe one by one, too."""

import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from mltswitch.targets import Change, Step, SwitchState
from mltswitch.targets.eos import TARGET
from mltswitch.targets.eos.read import RUNNING_CONFIG, placed_lines
from switchsim.eos import MODES, EosDevice
from switchsim.settings import Facts
from tests.targets.eos.device import FAMILIES, actions, lines_of, policy_of, spelled
from tests.targets.under_test import NEVER, Lot, SwitchUnderTest

NUMBERS = st.integers(0, 6)
OURS = re.compile("(uc-)?tx-queue|(no )?qos trust|qos (cos|dscp)|service-policy")
CONTROL = "mltswitch-control-ipv4"
POLICIES = (
    ["ip access-list " + CONTROL, "7 permit ip any any dscp 6", "900 deny ip any any"],
    ["ip access-list " + CONTROL, "7 permit ip any any dscp 9"],
    ["class-map type qos match-any " + CONTROL, "match vlan 7"],
    [
        *("policy-map type quality-of-service mltswitch-host", "class " + CONTROL),
        *("set traffic-class 5", "set cos 3"),
    ],
)
QUEUE_LINES = (
    *("no priority", "bandwidth percent 7", "bandwidth guaranteed percent 9", "shape rate 50 percent"),
    *("shape rate 7000 kbps", "random-detect ecn count", "bandwidth guaranteed 4000 kbps"),
    *("bandwidth guaranteed 1000 pps", "shape rate 1000 pps"),
    "random-detect ecn minimum-threshold 9 kbytes maximum-threshold 90 kbytes",
    "random-detect ecn minimum-threshold 9 bytes maximum-threshold 9000000 bytes max-mark-probability 5",
    "random-detect drop minimum-threshold 9 kbytes maximum-threshold 90 kbytes drop-probability 5",
)
PORT_LINES = ("no qos trust", "qos trust cos", "qos trust dscp", "no switchport", "qos cos 3", "qos dscp 9")


class EosUnderTest(SwitchUnderTest):
    """An Arista switch."""

    target = TARGET
    accepted = re.compile(r"(?!%)[^\0]*")
    settings_of_others = (
        *("interface Ethernet8/1", "qos trust cos", "shape rate 50 percent", "exit"),
        *("ip access-list theirs", "10 permit ip any any dscp 8", "exit"),
        *("class-map type qos match-any theirs", "match ip access-group theirs", "exit"),
        *("policy-map type quality-of-service theirs", "class theirs", "set traffic-class 3", "exit", "exit"),
        *("interface Ethernet7/1", "service-policy type qos input theirs", "exit"),
        *("interface Ethernet1/1", "description theirs", "exit"),
        *("qos map cos 3 to traffic-class 5", "ip route 192.0.2.0/24 10.9.9.9"),
    )
    is_atomic = True

    def configuration(self) -> list[tuple[tuple[str, ...], str]]:
        """Routes, lists and policies stand in the order in which they came to be."""
        return configured(self.device)

    def is_saved(self) -> bool:
        return bool(self.device.saved == self.device.configuration)

    def objects(self) -> object:
        return [(modes, text) for modes, text in self.configuration() if "mltswitch" in (*modes, text)[0]]

    def others(self, wanted: SwitchState) -> object:
        ports = {f"interface {port.name}" for port in wanted.ports}
        found = set()
        for modes, text in self.configuration():
            head = modes[0] if modes else text
            is_of_port = head in ports and bool(OURS.match(modes[1] if len(modes) > 1 else text))
            is_of_switch = head.startswith(("qos map dscp", "qos map traffic-class", "ip route 10."))
            if not is_of_port and not is_of_switch and "mltswitch" not in head:
                found.add((modes, text))
        return found

    def leaving(self, port: str) -> list[list[int]]:
        running = self.device.configuration
        policy = policy_of(running, port)
        numbers = {word: dscp for dscp in range(64) for word in spelled(dscp)}
        sets = [[actions(running, policy, family, d).get("dscp") for d in range(64)] for family in FAMILIES]
        return [[dscp if word is None else numbers[word] for dscp, word in enumerate(each)] for each in sets]

    def lots(self, names: list[str], queues: frozenset[int]) -> list[Lot]:
        del queues
        running = self.device.configuration
        numbers = [queue for entrance in names for queue in queues_behind(running, entrance)]
        lot = {(leaving, queue): self._lot(leaving, queue) for leaving in names for queue in {*numbers}}
        return [lot[leaving, queue] for leaving in names for queue in numbers]

    def _lot(self, leaving: str, queue: int) -> Lot:
        inner = f"{self.device.queue_word} {queue}"
        for line in lines_of(self.device.configuration, f"interface {leaving}", inner):
            if line.startswith("random-detect ecn minimum-threshold "):
                return (int(line.split()[3]),)
        return (NEVER,)

    def steps_by_hand(self, change: Change) -> tuple[Step, ...]:
        """Without the session."""
        words = ("end", "configure session")
        return tuple(step for step in change.steps if not step.command.startswith(words))

    def disturb(self, data: st.DataObject, wanted: SwitchState) -> None:
        draw = data.draw
        lines = [
            f"qos map dscp {dscp} to traffic-class {draw(NUMBERS)}"
            + draw(st.sampled_from(["", " drop-precedence 0", " drop-precedence 1"]))
            for dscp in draw(st.sets(st.integers(0, 63), max_size=6))
        ]
        lines += [f"qos map traffic-class {n} to tx-queue {draw(NUMBERS)}" for n in draw(st.sets(NUMBERS))]
        for entry in draw(st.lists(st.sampled_from(POLICIES), unique_by=str)):
            lines += entry
        for port in wanted.ports:
            lines.append(f"interface {port.name}")
            lines += draw(st.lists(st.sampled_from(PORT_LINES)))
            if not port.rewritten:
                lines += draw(st.sampled_from([[], ["service-policy type qos input FOREIGN"]]))
            for queue in draw(st.sets(st.integers(0, 7), max_size=3)):
                lines.append(f"{self.device.queue_word} {queue}")
                lines += draw(st.lists(st.sampled_from(QUEUE_LINES), max_size=4))
        for route in draw(st.lists(st.sampled_from([*wanted.routes, None]), max_size=3)):
            if route is not None:
                hop = str(route.next_hop).replace("0.0.0.0", "10.9.8.7")  # noqa: S104 (no socket)
                ways = ("Null0", "Null0 9", f"{hop} 7", f"{route.port} {hop} 5", "10.9.9.9")
                lines.append(f"ip route {route.prefix} {draw(st.sampled_from(ways))}")
        # Where a line cannot be entered over a former plan, the others are foreign enough.
        self.device.configure(*lines)


def configured(device: EosDevice) -> list[tuple[tuple[str, ...], str]]:
    """The whole configuration; routes, lists and policies stand in the order in which they came to be."""
    session = device.open_session("admin")
    session.enter("enable")
    return sorted(placed_lines(session.enter(RUNNING_CONFIG).text))


def queues_behind(running: Facts, entrance: str) -> Iterator[int]:
    """The queue of each code point of packets that arrive at a port."""
    lines, policy = lines_of(running, f"interface {entrance}"), policy_of(running, entrance)
    cos = next((int(line.split()[2]) for line in lines if line.startswith("qos cos ")), 0)
    trusted = "qos trust dscp" in lines or ("no switchport" in lines and "no qos trust" not in lines)
    for dscp in range(64):
        number = _fact(running, "class-of-dscp", dscp)[0] if trusted else _fact(running, "class-of-cos", cos)
        done = actions(running, policy, "ip", dscp) if policy else {}
        yield _fact(running, "queue-of-class", int(done.get("traffic-class", number)))


def _fact(running: Facts, what: str, *keys: int) -> Any:
    """A setting of the whole switch."""
    return MODES["tx-queue"].fact(running, "", what, *keys)
