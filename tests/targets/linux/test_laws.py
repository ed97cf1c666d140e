"""The circular laws of the Linux target, over random plans and without a kernel."""

import contextlib
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan import Plan
from mltswitch.targets import RunningState, SwitchState
from mltswitch.targets.linux import TARGET
from mltswitch.targets.linux.render import shaper_burst_bytes
from mltswitch.targets.linux.tree import switch_state, trees
from tests.targets.strategies import plans, switch_names

SLOW = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
SOFTWARE = TARGET.hardware(None)


@SLOW
@given(plans(SOFTWARE), st.data())
def test_what_is_rendered_is_read_back(plan: Plan, data: st.DataObject) -> None:
    state = TARGET.quantise(plan, data.draw(switch_names(plan))).state
    files = TARGET.render(state)
    assert TARGET.parse(files) == state
    assert TARGET.render(state) == files
    assert switch_state(trees(state), state.routes) == state


@SLOW
@given(plans(SOFTWARE), st.data())
def test_linux_expresses_every_plan_exactly(plan: Plan, data: st.DataObject) -> None:
    quantised = TARGET.quantise(plan, data.draw(switch_names(plan)))
    assert quantised.roundings == ()
    assert list(quantised.class_queues.values()) == list(range(1, len(plan.classes) + 1))


@SLOW
@given(plans(SOFTWARE), st.data())
def test_no_change_where_nothing_differs(plan: Plan, data: st.DataObject) -> None:
    state = TARGET.quantise(plan, data.draw(switch_names(plan))).state
    change = TARGET.diff(RunningState(state, {}), state)
    assert change.is_empty
    assert change.text == ""


@SLOW
@given(plans(SOFTWARE), plans(SOFTWARE))
def test_every_line_of_a_change_is_our_own(before: Plan, after: Plan) -> None:
    old, new = (TARGET.quantise(plan, plan.topology.switches[-1].name).state for plan in (before, after))
    change = TARGET.diff(RunningState(old, {}), new)
    files = TARGET.render(new)
    known = {line for text in files.values() for line in text.splitlines()}
    for step in change.steps:
        for line in step.stdin.splitlines():
            assert line.replace("route add", "route replace") in known or line.startswith("route del ")


MUTATIONS = [
    ("qdisc replace dev eth1 parent 10:2 ", "qdisc replace dev eth2 parent 10:2 "),
    ("# eth1\n", "qdisc replace dev eth9 root handle ffef: pfifo\n"),
    ("\n# eth2\n", "filter add dev eth1 parent 10: protocol arp prio 2 flower classid 10:1\n"),
    ("dev eth2 root handle ffef: pfifo", "dev eth1 root handle ffef: pfifo"),
    ("flower indev eth1", "flower indev eth9"),
    ("qdisc replace dev eth1 parent 10:1 ", "qdisc replace dev eth1; reboot parent 10:1 "),
    ("classid 10:1\n", "classid 10:1 action drop\n"),
    ("classid 10:1\n", "classid 10:2\n"),
    (" priomap ", " priomap 0 "),
    ("qdisc replace dev eth1 parent 10:1 handle 101:", "qdisc replace dev eth1 parent 10:1 handle 102:"),
    ("# eth1\n", "# eth1\nlink del eth1\n"),
    ("# eth1\n", "# eth1\x0bqdisc del dev eth1 root\n# \u2028\n"),
    (
        "root handle ffef: pfifo\n",
        "root handle ffef: pfifo\nqdisc replace dev eth1 root handle ffef: pfifo\n",
    ),
    ("filter add dev eth1 parent 10: protocol arp prio 2 flower classid 10:1\n", ""),
]


@pytest.mark.parametrize(("old", "new"), MUTATIONS)
def test_a_line_outside_the_grammar_is_refused(state: SwitchState, old: str, new: str) -> None:
    files = TARGET.render(state)
    assert old in files["qdiscs.tc"]
    with pytest.raises(UserInputError) as caught:
        TARGET.parse(files | {"qdiscs.tc": files["qdiscs.tc"].replace(old, new, 1)})
    assert "qdiscs.tc" in caught.value.where


@pytest.mark.parametrize(
    "line",
    [
        "route replace 10.9.0.0/16 via 10.1.0.2 dev eth2 proto 4",
        "route replace 10.9.0.1/16 via 10.1.0.2 dev eth2 proto 173",
        "route del 10.9.0.0/16",
        "route replace 10.100.0.0/16 via 10.1.0.2 dev eth2 proto 173",
    ],
)
def test_a_route_of_somebody_else_is_refused(state: SwitchState, line: str) -> None:
    files = TARGET.render(state)
    lines = files["routes.ip"].count("\n") + 1
    with pytest.raises(UserInputError) as caught:
        TARGET.parse(files | {"routes.ip": files["routes.ip"] + line + "\n"})
    assert caught.value.where == f"routes.ip:{lines}"


@given(st.text(max_size=200))
def test_any_text_but_comments_is_refused(text: str) -> None:
    is_empty = all(re.fullmatch(r"#[\t -~]*|", line) for line in text.split("\n"))
    with contextlib.nullcontext() if is_empty else pytest.raises(UserInputError):
        assert TARGET.parse({"qdiscs.tc": text, "routes.ip": ""}) == SwitchState((), ())


def test_missing_file_is_refused() -> None:
    with pytest.raises(UserInputError, match="the files are"):
        TARGET.parse({"qdiscs.tc": ""})


def test_a_changed_threshold_replaces_one_queue(state: SwitchState) -> None:
    port = state.ports[0]
    queues = tuple(
        replace(queue, ecn_threshold_bytes=5000) if queue.queue == 3 else queue for queue in port.queues
    )
    running = SwitchState((replace(port, queues=queues), *state.ports[1:]), state.routes)
    change = TARGET.diff(RunningState(running, {}), state)
    assert [step.command for step in change.steps] == ["tc -batch -"]
    assert change.steps[0].stdin == (
        "qdisc replace dev eth1 parent 10:3 handle 103: red limit 200000 min 30280 max 30280 "
        "avpkt 977 burst 31 bandwidth 10gbit probability 1 ecn\n"
    )
    assert "min 5000" in change.text


def test_a_lost_port_is_built_anew_and_only_it(state: SwitchState) -> None:
    change = TARGET.diff(RunningState(SwitchState(state.ports[1:], state.routes), {}), state)
    lines = change.steps[0].stdin.splitlines()
    assert lines[0] == "qdisc replace dev eth1 root handle ffef: pfifo"
    assert {line.split(" dev ")[1].split()[0] for line in lines} == {"eth1"}


def test_routes_that_are_no_longer_wanted_are_removed(state: SwitchState) -> None:
    change = TARGET.diff(RunningState(state, {}), SwitchState(state.ports, state.routes[1:]))
    assert [step.stdin for step in change.steps] == [
        "route del 10.100.0.0/16 via 10.1.0.2 dev eth2 proto 173\n"
    ]


def test_names_that_linux_refuses_are_named(small_plan: Plan) -> None:
    plan = _with_pattern(small_plan, "Ethernet1/1/1/{n}")
    with pytest.raises(UnsupportedPlanError, match="no name for an interface"):
        TARGET.quantise(plan, "leaf1")


def test_a_rate_of_broken_bytes_is_refused(small_plan: Plan) -> None:
    profiles = tuple(
        entry.model_copy(update={"rate_bps": 1_000_001, "shaped": True}) for entry in small_plan.port_profiles
    )
    with pytest.raises(UnsupportedPlanError, match="whole bytes per second"):
        TARGET.quantise(small_plan.model_copy(update={"port_profiles": profiles}), "leaf1")


def test_unknown_hardware_is_refused() -> None:
    with pytest.raises(UserInputError, match="unknown hardware 'sn2100'"):
        TARGET.hardware("sn2100")


@given(st.integers(8, 10**12))
def test_shaper_lets_the_largest_frame_pass(rate_bps: int) -> None:
    assert shaper_burst_bytes(rate_bps) >= 9216 + 14


def _with_pattern(plan: Plan, pattern: str) -> Plan:
    document = plan.fabric.model_dump(mode="json", by_alias=True)
    for group in ("spines", "leaves"):
        document["topology"]["leaf_spine"][group]["port_names"]["pattern"] = pattern
    document["trusted_ports"] = "all"
    return Plan.model_validate(plan.model_dump(mode="json", by_alias=True) | {"fabric": document})
