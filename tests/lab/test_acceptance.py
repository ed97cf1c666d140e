"""The acceptance test against real Linux queues: a pushed plan passes, what is done to it is caught."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mltswitch import deploy
from mltswitch.capabilities import BytesLimit
from mltswitch.inventory import Device, Inventory
from mltswitch.measure.acceptance import (
    AcceptanceResult,
    DeviceCounters,
    Place,
    Question,
    TestHost,
    accept,
    find_place,
    open_hosts,
    payload_bytes,
)
from mltswitch.plan import Plan
from mltswitch.targets import target_for
from tests.lab.conftest import DEVICES, RunningLab, SessionLab

pytestmark = [pytest.mark.lab, pytest.mark.root]

PACKET = 1514
THRESHOLDS = {"gradient-0": (14, 28), "gradient-1": (18, 36), "gradient-2": (32, 64)}
"""Packets up to S and L: long enough for every question to have an answer."""
PORT = "eth2"


@dataclass(frozen=True)
class Pushed:
    """A lab that runs the plan."""

    lab: RunningLab
    inventory: Inventory
    plan: Plan

    def change(self, *edits: Callable[[str], str]) -> None:
        """Build the port under test anew from what the plan renders, changed by hand."""
        quantised = target_for("linux").quantise(self.plan, "leaf2")
        text = target_for("linux").render(quantised.state)["qdiscs.tc"]
        text = "".join(f"{line}\n" for line in text.splitlines() if f" dev {PORT} " in line)
        for edit in edits:
            changed = edit(text)
            assert changed != text
            text = changed
        done = self.lab.ssh("leaf2", "tc -batch -", text=text)
        assert done.returncode == 0, done.stderr

    def push(self, limit: str | None = None) -> None:
        report = deploy.push(self.plan, self.inventory, limit=limit)
        assert report.exit_code == 0, [device.error for device in report.devices]

    def accept(self, *classes: str, control: bool = False) -> AcceptanceResult:
        """The tests of these classes alone, for a test need not wait for the others."""
        place = find_place(self.plan, "leaf2", ("host1", "host3", "host4"), None, None)
        gradients = tuple(queue for queue in place.gradients if queue.traffic_class in classes)
        return self._run(replace(place, gradients=gradients, controls=place.controls if control else ()))

    def _run(self, place: Place) -> AcceptanceResult:
        def host(name: str) -> TestHost:
            return TestHost(name, tuple(self.lab.lab.host_namespace(name).command(())))

        senders = [
            replace(host(name), destinations=addresses)
            for name, addresses in zip(place.senders, place.destinations, strict=True)
        ]
        device = next(entry for entry in self.inventory.devices if entry.name == "leaf2")
        with (
            deploy.connect(device, target_for("linux")) as conversation,
            open_hosts(host(place.receiver), senders, payload_bytes(place)) as hosts,
        ):
            return accept(place, hosts, DeviceCounters(conversation), lambda _: None)


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
def pushed(session_lab: SessionLab, lab_plan: Plan) -> Iterator[Pushed]:
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
    found.push()
    yield found
    clean = "for port in $(ls /sys/class/net | grep eth); do tc qdisc del dev $port root; done\n"
    clean += "ip route flush proto 173"
    for device in devices:
        lab.ssh(device.name, clean)


@pytest.fixture
def sabotaged(pushed: Pushed) -> Iterator[Pushed]:
    """The plan is pushed again afterwards."""
    yield pushed
    pushed.push("leaf2")


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


def failures(result: AcceptanceResult) -> set[Question]:
    return {check.question for check in result.checks if check.holds is False}


def test_a_pushed_plan_is_accepted(pushed: Pushed) -> None:
    result = pushed.accept(*THRESHOLDS, control=True)
    assert result.accepted, [check for check in result.checks if check.holds is not True]
    assert {check.holds for check in result.checks} == {True}
    assert {check.question for check in result.checks} == set(Question)
    assert result.seconds < 60


S, L = THRESHOLDS["gradient-2"]
LAST = "105"
"""Handle of gradient-2's qdisc."""
NO_MARKS = {Question.MARKS_BEGIN, Question.MARKED_ABOVE, Question.DROPPED_ABOVE}


@pytest.mark.parametrize(
    ("change", "caught"),
    [
        pytest.param(red(LAST, 2 * S, 2 * L), NO_MARKS | {Question.STANDS}, id="S and L doubled"),
        pytest.param(red(LAST, 2 * S, L), NO_MARKS, id="S doubled"),
        pytest.param(
            red(LAST, S * 3 // 2, L),
            {Question.MARKS_BEGIN, Question.DROPPED_ABOVE},
            id="S half as long again",
        ),
        pytest.param(
            red(LAST, S // 2, L),
            {Question.BURST, Question.MARKS_BEGIN, Question.KEPT_BELOW},
            id="S halved",
        ),
        pytest.param(red(LAST, S, L, "ecn nodrop"), {Question.DROPPED_ABOVE}, id="nodrop"),
        pytest.param(
            red(LAST, S, L, ""), {Question.MARKS_BEGIN, Question.ECT_KEPT, Question.STANDS}, id="no ecn"
        ),
        pytest.param(red(LAST, S, L // 2), {Question.ECT_KEPT, Question.STANDS}, id="L halved"),
        pytest.param(red(LAST, S, L * 3 // 2), {Question.STANDS}, id="L half as long again"),
    ],
)
def test_a_changed_queue_is_caught(
    sabotaged: Pushed, change: Callable[[str], str], caught: set[Question]
) -> None:
    sabotaged.change(change)
    result = sabotaged.accept("gradient-2")
    assert failures(result) >= caught, result.checks
    assert Question.RATE not in failures(result)


def test_swapped_order_is_caught(sabotaged: Pushed) -> None:
    """Each class keeps its thresholds, but the lower one is served first."""
    tos = {entry.name: f"0x{entry.dscp[0] << 2:02x}" for entry in sabotaged.plan.classes}
    sabotaged.change(
        swapped_code_points(tos["gradient-1"], tos["gradient-2"]),
        red("104", *THRESHOLDS["gradient-2"]),
        red("105", *THRESHOLDS["gradient-1"]),
    )
    result = sabotaged.accept("gradient-1", "gradient-2")
    assert Question.ORDER in failures(result), result.checks
    wrong = [check for check in result.checks if check.holds is False]
    # The counters are those of the queue that the class should have.
    assert {check.question for check in wrong} <= {Question.ORDER, Question.COUNTERS}, wrong


def test_control_below_gradients_is_caught(sabotaged: Pushed) -> None:
    tos = {entry.name: f"0x{entry.dscp[0] << 2:02x}" for entry in sabotaged.plan.classes}
    sabotaged.change(swapped_code_points(tos["control"], tos["gradient-2"]))
    result = sabotaged.accept("gradient-1", control=True)
    assert Question.CONTROL in failures(result), result.checks


def test_a_slower_port_is_caught(sabotaged: Pushed) -> None:
    sabotaged.change(lambda text: text.replace(" rate 10000000bit", " rate 7000000bit"))
    assert Question.RATE in failures(sabotaged.accept("gradient-2"))
