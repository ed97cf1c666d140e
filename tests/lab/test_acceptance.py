"""The acceptance test against real Linux queues: a pushed plan passes, what is done to it is caught."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mltswitch import deploy
from mltswitch.capabilities import BytesLimit
from mltswitch.inventory import Device, Inventory
from mltswitch.measure import TestHost, open_hosts
from mltswitch.measure.acceptance import (
    AcceptanceResult,
    DeviceCounters,
    Place,
    Question,
    Verdict,
    accept,
    find_place,
)
from mltswitch.measure.acceptance.run import MEASUREMENTS
from mltswitch.plan import Plan
from mltswitch.targets import target_for
from tests.lab.conftest import DEVICES, SharedLab
from tests.measuring import measured

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.quiet]

PACKET = 1514
THRESHOLDS = {"gradient-0": (14, 28), "gradient-1": (18, 36), "gradient-2": (32, 64)}
"""Packets up to S and L: long enough for every question to have an answer."""
SWITCH, PORT = "leaf2", "eth2"


@dataclass(frozen=True)
class Pushed:
    """A lab that runs the plan."""

    lab: SharedLab
    inventory: Inventory
    plan: Plan

    def change(self, *edits: Callable[[str], str]) -> None:
        """Build the port under test anew, and what all ports rewrite, with changes by hand."""
        fitted = target_for("linux").fit_to_hardware(self.plan, SWITCH)
        text = target_for("linux").render(fitted.state, fitted.capabilities)["qdiscs.tc"]
        ours = re.compile(rf".* dev ({PORT} .*|\S+ (clsact|ingress)( .*)?)")
        text = "".join(f"{line}\n" for line in text.splitlines() if ours.fullmatch(line))
        for edit in edits:
            changed = edit(text)
            assert changed != text
            text = changed
        done = self.lab.ssh(SWITCH, "tc -batch -", text=text)
        assert done.returncode == 0, done.stderr

    def place(self) -> Place:
        return find_place(self.plan, SWITCH, ("host1", "host3", "host4"), None, None)

    def accept(self, place: Place) -> AcceptanceResult:
        def host(name: str) -> TestHost:
            return TestHost(name, tuple(self.lab.lab.host_namespace(name).command(())))

        senders = [
            replace(host(name), destinations=addresses)
            for name, addresses in zip(place.senders, place.destinations, strict=True)
        ]
        device = next(entry for entry in self.inventory.devices if entry.name == SWITCH)
        with (
            deploy.connect(device, target_for("linux")) as session,
            open_hosts(self.plan, host(place.receiver), senders, place.tested.packet_bytes) as hosts,
        ):
            counters = DeviceCounters(session, target=target_for("linux"))
            return accept(place, hosts, counters, lambda _: None)


def with_thresholds(plan: Plan) -> Plan:
    profiles = tuple(
        profile.model_copy(
            update={
                "queues": tuple(
                    queue.model_copy(
                        update={
                            "ecn_threshold_bytes": THRESHOLDS[queue.traffic_class][0] * PACKET,
                            "limit": BytesLimit(THRESHOLDS[queue.traffic_class][1] * PACKET),
                        }
                    )
                    if queue.traffic_class in THRESHOLDS
                    else queue
                    for queue in profile.queues
                )
            }
        )
        for profile in plan.port_profiles
    )
    return plan.model_copy(update={"port_profiles": profiles})


@pytest.fixture(scope="module")
def pushed(session_lab: SharedLab, lab_plan: Plan) -> Iterator[Pushed]:
    """The plan on the switch under test; of the others a host needs no more than their routes."""
    lab = session_lab.up()
    devices = tuple(
        Device(
            entry.name,
            entry.platform,
            entry.name,
            entry.address,
            entry.port,
            "root",
            lab.lab.paths.private_key,
            lab.lab.paths.known_hosts,
            None,
            ("all",),
        )
        for entry in DEVICES
        if entry.platform == "linux"
    )
    found = Pushed(lab, Inventory(devices, Path("lab")), with_thresholds(lab_plan))
    report = deploy.push(found.plan, found.inventory, limit=SWITCH)
    assert report.exit_code == 0, [device.error for device in report.devices]
    linux = target_for("linux")
    for device in devices:
        if device.name != SWITCH:
            fitted = linux.fit_to_hardware(found.plan, device.name)
            routes = linux.render(fitted.state, fitted.capabilities)["routes.ip"]
            done = lab.ssh(device.name, "ip -batch -", text=routes)
            assert done.returncode == 0, done.stderr
    yield found
    lab.ssh(SWITCH, "for port in $(ls /sys/class/net | grep eth); do tc qdisc del dev $port root; done")
    for device in devices:
        lab.ssh(device.name, "ip route flush proto 173")


@pytest.fixture(autouse=True)
def short_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab's queues settle sooner than a phase of the usual length ends, and its empty path is short."""
    monkeypatch.setattr("mltswitch.measure.runs.FEWEST_PACKETS", 700)
    monkeypatch.setattr("mltswitch.measure.runs.IDLE_PACKETS", 15)


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is not measured again: a fault shows in every run, and a run takes its time."""
    monkeypatch.setattr("mltswitch.measure.acceptance.run.MEASUREMENTS", 1)


def red(handle: str, threshold: int, limit: int, options: str = "ecn") -> Callable[[str], str]:
    """Other thresholds, in packets, for the queue whose qdisc has this handle."""
    size = threshold * PACKET
    settings = (
        f"red limit {limit * PACKET} min {size} max {size} avpkt 1000 burst {-(-size // 1000)} "
        f"bandwidth 10gbit probability 1 {options}"
    )
    return lambda text: re.sub(rf"(?<= handle {handle}: )red .*", settings, text)


def swapped_code_points(one: str, other: str) -> Callable[[str], str]:
    """The filters of two DSCP/ECN bytes, exchanged."""

    def edit(text: str) -> str:
        return (
            text.replace(f"ip_tos {one}/", "ip_tos ?/")
            .replace(f"ip_tos {other}/", f"ip_tos {one}/")
            .replace("ip_tos ?/", f"ip_tos {other}/")
        )

    return edit


def without(words: str) -> Callable[[str], str]:
    """No line with these words."""
    return lambda text: "".join(f"{line}\n" for line in text.splitlines() if words not in line)


def replaced(pattern: str, by: str) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, by, text)


def failures(result: AcceptanceResult) -> set[tuple[str, Question]]:
    return {(check.traffic_class, check.question) for check in result.checks if check.holds is False}


def of(traffic_class: str, *questions: Question) -> set[tuple[str, Question]]:
    return {(traffic_class, question) for question in questions}


def tos_of(plan: Plan, name: str) -> str:
    entry = plan.class_by_name[name]
    return f"0x{entry.dscp[0] << 2:02x}"


def test_a_pushed_plan_is_accepted(pushed: Pushed) -> None:
    pushed.change()
    result = measured(
        lambda: pushed.accept(pushed.place()), lambda result: all(check.holds for check in result.checks)
    )
    assert {check.holds for check in result.checks} == {True}, [
        check for check in result.checks if check.holds is not True
    ]
    assert result.verdict is Verdict.ACCEPTED
    assert {check.question for check in result.checks} == set(Question)


@pytest.mark.usefixtures("once")
def test_each_changed_queue_is_caught(pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class is loaded alone, or against all others, so that one fault does not hide another."""
    (low, low_limit), (middle, middle_limit), (high, high_limit) = THRESHOLDS.values()
    pushed.change(
        red("103", 2 * low, 2 * low_limit),
        red("104", middle, middle_limit, ""),
        red("105", high, high_limit, "ecn nodrop"),
        replaced(" rate 1000000bit ", " rate 3000000bit "),
        replaced(r"(classid 20:2 drr quantum) \d+", r"\1 200"),
        without(" action pedit "),
    )
    monkeypatch.setattr("mltswitch.measure.acceptance.run.pairwise", lambda _: ())  # nothing is out of order
    above = (Question.MARKS_BEGIN, Question.MARKED_ABOVE, Question.DROPPED_ABOVE, Question.STANDS)
    caught = of("gradient-0", *above)
    caught |= of("gradient-1", Question.STANDS) | of("gradient-2", Question.DROPPED_ABOVE)
    caught |= of("gradient-1", Question.MARKS_BEGIN, Question.ECT_KEPT)
    caught |= of("control", Question.CAPPED) | of("background", Question.SHARE)
    caught |= of("network-control", Question.HOST_CONTROL)

    def accused(found: set[tuple[str, Question]]) -> set[Question]:
        """What nobody has changed."""
        return {question for _, question in found} & {Question.RATE, Question.CONTROL}

    found = measured(
        lambda: failures(pushed.accept(pushed.place())),
        lambda found: found >= caught and not accused(found),
    )
    assert found >= caught, caught - found
    assert not accused(found), found


@pytest.mark.usefixtures("once")
def test_a_wrong_order_is_caught(pushed: Pushed) -> None:
    """Two classes keep their thresholds, but the lower one is served first; control is served last."""
    pushed.change(
        swapped_code_points(tos_of(pushed.plan, "gradient-1"), tos_of(pushed.plan, "gradient-2")),
        red("104", *THRESHOLDS["gradient-2"]),
        red("105", *THRESHOLDS["gradient-1"]),
        without(f"ip_tos {tos_of(pushed.plan, 'control')}/"),
    )
    place = pushed.place()
    place = replace(
        place,
        gradients=place.gradients[1:],
        controls=tuple(replace(entry, maximum_bps=None) for entry in place.controls),
        background=replace(place.background, minimum_bps=None),
        host_control=None,
    )
    caught = of("gradient-1 > gradient-2", Question.ORDER) | of("control", Question.CONTROL)
    # The counters are those of the queue that the class should have.
    counters = of("gradient-1", Question.COUNTERS) | of("gradient-2", Question.COUNTERS)
    found = measured(
        lambda: failures(pushed.accept(place)), lambda found: caught <= found <= caught | counters
    )
    assert found >= caught, caught - found
    assert found <= caught | counters, found - caught


def test_a_slower_port_is_caught_every_time(pushed: Pushed) -> None:
    """Repeating what fails hides no fault."""
    pushed.change(replaced(" rate 10000000bit", " rate 7000000bit"))
    place = pushed.place()
    place = replace(
        place,
        gradients=place.gradients[:1],
        controls=(),
        background=replace(place.background, minimum_bps=None),
        host_control=None,
    )
    # What hosts that paused in every run say is no answer: that is asked anew, and not what was answered.
    result = measured(
        lambda: pushed.accept(place), lambda result: not any(check.is_disturbed for check in result.checks)
    )
    assert failures(result) >= of("gradient-0", Question.RATE)
    assert {check.measured for check in result.checks if check.question is Question.RATE} == {MEASUREMENTS}
