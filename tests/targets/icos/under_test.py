"""FASTPATH as the laws see it: every line takes effect at once."""

import re
from itertools import product

from hypothesis import strategies as st

from mltswitch.targets import SwitchState
from mltswitch.targets.icos import TARGET
from mltswitch.targets.remap import HOST_POLICY, UNTRUSTED_POLICY, policy_of
from switchsim.icos import MODES, SAVED, IcosDevice
from switchsim.icos_sheet import FAMILIES
from switchsim.settings import NO_FACTS, Facts
from tests.targets.icos.device import actions
from tests.targets.icos.device import policy_of as running_policy
from tests.targets.strategies import CONTROL_CODE_POINTS
from tests.targets.under_test import NEVER, Lot, SwitchUnderTest

QUEUES = st.integers(0, 6)
ROW = st.lists(st.integers(0, 100), min_size=4, max_size=4).map(sorted)
OURS = {
    "trust",
    "strict",
    "random-detect",
    "curve",
    "min-bandwidth",
    "exponent",
    "policy",
    "queue-of-priority",
}


class IcosUnderTest(SwitchUnderTest):
    """A Dell N-series switch."""

    target = TARGET
    configures = ("configure",)
    accepted = re.compile(f"|{re.escape(SAVED)}")
    settings_of_others = (
        *("interface te1/0/8", "classofservice trust untrusted", "cos-queue strict 3", "exit"),
        *("class-map match-all theirs ipv4", "match vlan 7", "exit"),
        *("policy-map theirs in", "class theirs", "assign-queue 5", "exit", "exit"),
        *("interface te1/0/7", "service-policy in theirs", "exit"),
        "ip route 192.0.2.0 255.255.255.0 192.0.2.9",
    )

    def configuration(self) -> object:
        """Classes have no order; the classes of a policy do."""
        return comparable(self.device.configuration)

    def is_saved(self) -> bool:
        return bool(self.device.saved == self.device.configuration)

    def objects(self) -> object:
        facts = self.device.configuration.items()
        return comparable(Facts({f: v for f, v in facts if f[0].startswith(("class-map ", "policy-map "))}))

    def others(self, wanted: SwitchState) -> object:
        ports = {f"interface {port.name}" for port in wanted.ports}
        return {
            fact: value
            for fact, value in self.device.configuration.items()
            if (fact[0] not in ports or fact[1] not in OURS)
            and fact[:2] != ("", "queue-of-dscp")
            and not fact[0].startswith(("class-map match-all mltswitch", "policy-map mltswitch"))
            and not (fact[1] == "route" and str(fact[2]).startswith("10."))
        }

    def leaving(self, port: str) -> list[list[int]]:
        policy = running_policy(self.device, port)
        return [
            [actions(self.device, policy, family, dscp).get("mark-ip-dscp", dscp) for dscp in range(64)]
            for family in FAMILIES
        ]

    def _queue_of(self, entrance: str, dscp: int) -> int:
        fact = self.device.fact
        done = actions(self.device, running_policy(self.device, entrance), "ipv4", dscp)
        number: int | None = done.get("assign-queue")
        if number is not None:
            return number
        trusted = fact(entrance, "trust") == "ip-dscp"
        number = fact("", "queue-of-dscp", dscp) if trusted else fact(entrance, "queue-of-priority", 0)
        assert number is not None
        return number

    def lots(self, names: list[str], queues: frozenset[int]) -> list[Lot]:
        del queues
        numbers = [self._queue_of(entrance, dscp) for entrance in names for dscp in range(64)]
        lot = {(leaving, queue): self._lot(leaving, queue) for leaving in names for queue in {*numbers}}
        return [lot[leaving, queue] for leaving in names for queue in numbers]

    def _lot(self, leaving: str, queue: int) -> Lot:
        """The percentage of the queue from which packets are dropped."""
        thresholds: tuple[int, ...] = self.device.fact(leaving, "curve", queue)[1:5]
        return (min(thresholds) if self.device.fact(leaving, "random-detect", queue) else NEVER,)

    def levels(self, names: list[str]) -> list[list[int]]:
        numbers = {name: [self._queue_of(name, dscp) for dscp in range(64)] for name in names}
        return [
            [number + 1 if self.device.fact(leaving, "strict", number) else 0 for number in numbers[entrance]]
            for entrance, leaving in product(names, names)
        ]

    def start(self, data: st.DataObject) -> None:
        """Also where every port already trusts DSCP, so that the map of delivery leads to weighted queues."""
        if data.draw(st.booleans(), "trusting"):
            self.configure("classofservice trust ip-dscp")

    def disturb(self, data: st.DataObject, wanted: SwitchState) -> None:
        draw = data.draw
        lines = [
            f"classofservice ip-dscp-mapping {dscp} {draw(QUEUES)}"
            for dscp in draw(st.lists(st.integers(0, 63), max_size=4))
        ]
        lines += ["class-map match-all voice ipv4", "match vlan 7", "exit"]
        lines += ["policy-map theirs in", "class voice", "assign-queue 5", "exit", "exit"]
        # Names of ours with contents of somebody else.
        dscp = draw(st.sampled_from([8, 48, 56]))
        strange = [f"class-map match-all mltswitch-{dscp}-ipv4 ipv4", f"match ip dscp {draw(QUEUES)}", "exit"]
        lines += draw(st.sampled_from([[], strange]))
        for policy in (HOST_POLICY, UNTRUSTED_POLICY):
            action = draw(st.sampled_from([[], ["assign-queue 3"], ["assign-queue 3", "mark ip-dscp 9"]]))
            strange = [f"policy-map {policy} in", "class voice", *action, "exit", "exit"]
            lines += draw(st.sampled_from([[], strange]))
        for port in draw(st.lists(st.sampled_from(wanted.ports), unique=True)):
            low, high, scale = (" ".join(map(str, draw(ROW))) for _ in range(3))
            words = [
                f"classofservice trust {draw(st.sampled_from(['dot1p', 'ip-dscp', 'untrusted']))}",
                f"classofservice dot1p-mapping {draw(st.integers(0, 7))} {draw(QUEUES)}",
                f"cos-queue strict {draw(QUEUES)}",
                f"no cos-queue strict {draw(QUEUES)}",
                f"cos-queue random-detect {draw(QUEUES)}",
                f"random-detect queue-parms {draw(QUEUES)} min-thresh {low} max-thresh {high} "
                f"drop-prob-scale {scale}{draw(st.sampled_from(['', ' ecn']))}",
                f"random-detect exponential-weighting-constant {draw(st.integers(0, 15))}",
                "no cos-queue min-bandwidth",
                "traffic-shape 50",
            ]
            chosen = draw(st.lists(st.sampled_from(words), max_size=6))
            if not policy_of(port) and draw(st.booleans()):
                chosen += [f"no service-policy in {HOST_POLICY}", f"no service-policy in {UNTRUSTED_POLICY}"]
                chosen.append("service-policy in theirs")
            lines += [f"interface {port.name}", *chosen, "exit"]
        for route in draw(st.lists(st.sampled_from([*wanted.routes, None]), unique=True, max_size=3)):
            hop, preference = draw(st.sampled_from(["192.0.2.1", "Null0"])), draw(st.sampled_from(["", " 7"]))
            if route:
                prefix = f"{route.prefix.network_address} {route.prefix.netmask}"
                lines.append(f"ip route {prefix} {hop}{preference}")
        # What does not fit the rest is refused, and the others are foreign enough.
        self.device.configure(*lines)

    def disorder(self, data: st.DataObject, wanted: SwitchState) -> None:
        """Ports of which some run a plan, some another, some are as delivered and some are anybody's.

        What hosts may not use lies in one queue. It moves by one line, the policy's, so from two queues it
        cannot keep its place among what moves from between them.
        """
        facts, changed = self.device.configuration, Facts()
        for name in [port.name for port in wanted.ports]:
            kind = data.draw(st.sampled_from(["planned", "delivered", "trusting", "strange"]), name)
            if kind in {"delivered", "trusting"}:
                place = f"interface {name}"
                facts = facts.without_block(place).with_block(place)
                changed |= {(place, "trust"): "ip-dscp"} if kind == "trusting" else {}
            elif kind == "strange":
                changed |= self._strange_port(data, name)
        running, delivered = (
            [each.fact("", "queue-of-dscp", dscp) for dscp in range(64)]
            for each in (self.device, IcosDevice())
        )
        anything = st.lists(QUEUES, min_size=64, max_size=64).map(with_control_together)
        dscp_map = data.draw(st.sampled_from([running, delivered]) | anything)
        changed |= {("", "queue-of-dscp", dscp): queue for dscp, queue in enumerate(dscp_map)}
        delivered_facts = {fact for fact, value in changed.items() if MODES.fact(NO_FACTS, *fact) == value}
        facts = Facts({**facts, **changed})
        self.device.configuration = Facts(
            {fact: facts[fact] for fact in facts if fact not in delivered_facts}
        )

    def _strange_port(self, data: st.DataObject, port: str) -> Facts:
        """Any trust, any default queue, and strict service in any queues, or in those that it has.

        The policy of ports that are not trusted is only there where nothing is trusted.
        """
        strict = data.draw(st.none() | st.lists(st.booleans(), min_size=7, max_size=7))
        changed, place = Facts(), f"interface {port}"
        if strict is not None:
            changed |= {(place, "strict", queue): on for queue, on in enumerate(strict)}
            changed[place, "min-bandwidth"] = (0,) * len(strict)
        trust = data.draw(st.sampled_from(["ip-dscp", "ip-dscp", "dot1p", "untrusted"]))
        if running_policy(self.device, port) != UNTRUSTED_POLICY:
            changed[place, "trust"] = trust
        return Facts({**changed, (place, "queue-of-priority", 0): data.draw(QUEUES)})


def comparable(configuration: Facts) -> tuple[object, ...]:
    """All of a configuration; classes have no order, and the classes of a policy do."""
    heads = configuration.heads("policy-map ")
    return dict(configuration), {head: configuration.heads("", head) for head in heads}


def with_control_together(queues: list[int]) -> list[int]:
    first = queues[CONTROL_CODE_POINTS[0]]
    return [first if dscp in CONTROL_CODE_POINTS else queue for dscp, queue in enumerate(queues)]
