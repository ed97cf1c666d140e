"""What the Linux target writes, reads and refuses, without a kernel."""

import contextlib
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan import Plan
from mltswitch.targets import PortState, QueueState, RunningState, SwitchState
from mltswitch.targets.linux import TARGET
from mltswitch.targets.linux.lines import shaper_burst_bytes
from mltswitch.targets.state import every_dscp_but
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

CAPABILITIES = TARGET.hardware(None)

SLOW = settings(
    deadline=None,
    max_examples=LAW_EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@SLOW
@given(plans(CAPABILITIES), st.data())
def test_linux_rounds_nothing_but_a_share(plan: Plan, data: st.DataObject) -> None:
    fitted = TARGET.fit_to_hardware(plan, data.draw(switch_names(plan)))
    assert {rounding.field for rounding in fitted.roundings} <= {"minimum"}
    assert list(fitted.class_queues.values()) == list(range(1, len(plan.classes) + 1))
    assert fitted.unsupported == ()
    given_share = plan.classes[-1].guaranteed_share
    for port in fitted.state.ports:
        assert port.queues[1].maximum is not None
        minimum = port.queues[-1].minimum
        if given_share is None:
            assert minimum is None
        else:
            assert isinstance(minimum, PortShare)
            assert given_share * 100 <= minimum.percent + 1e-9 < given_share * 100 + 1


@SLOW
@given(plans(CAPABILITIES), plans(CAPABILITIES))
def test_every_line_of_a_change_is_our_own(before: Plan, after: Plan) -> None:
    old, new = (
        TARGET.fit_to_hardware(plan, plan.topology.switches[-1].name).state for plan in (before, after)
    )
    change = TARGET.diff(RunningState(old, {}), new, CAPABILITIES)
    files = TARGET.render(new, CAPABILITIES)
    known = {line for text in files.values() for line in text.splitlines()}
    for step in change.steps:
        for line in step.stdin.splitlines():
            assert line.replace("route add", "route replace") in known or line.startswith("route del ")


@st.composite
def _wrong_states(draw: st.DrawFn, good: SwitchState) -> SwitchState:
    """One queue of one port says what tc has no words for."""
    port = good.ports[0]
    place, wrong = draw(
        st.sampled_from(
            [
                (0, {"limit": Unlimited()}),
                (2, {"minimum": PortShare(5)}),
                (-1, {"minimum": PortShare(100)}),
                (-1, {"minimum": BitRate(8000)}),
                (-1, {"maximum": BitRate(8000)}),
                (1, {"maximum": PortShare(5)}),
                (1, {"maximum": BitRate(8001)}),
                (3, {"maximum": BitRate(8000)}),
            ]
        )
    )
    queues = list(port.queues)
    queues[place] = replace(queues[place], **wrong)  # type: ignore[arg-type]  # any field
    return replace(good, ports=(replace(port, queues=tuple(queues)), *good.ports[1:]))


@given(st.data())
def test_what_tc_has_no_words_for_is_refused(state: SwitchState, data: st.DataObject) -> None:
    wrong = data.draw(_wrong_states(state))
    with pytest.raises(UnsupportedPlanError) as caught:
        TARGET.render(wrong, CAPABILITIES)
    assert caught.value.where.startswith("port eth1")


@pytest.mark.parametrize(
    ("trusted", "rewritten"), [(True, every_dscp_but(0)), (False, ()), (False, (48, 56))]
)
def test_a_port_that_is_not_trusted_rewrites_everything(
    state: SwitchState, trusted: bool, rewritten: tuple[int, ...]
) -> None:
    port = replace(state.ports[1], trusted=trusted, rewritten=rewritten)
    with pytest.raises(UnsupportedPlanError, match="not trusted rewrites all code points"):
        TARGET.render(replace(state, ports=(state.ports[0], port)), CAPABILITIES)


def test_what_arrives_is_changed_without_the_queues(state: SwitchState) -> None:
    first, second = state.ports
    believed = replace(first, trusted=True, rewritten=(48, 56))
    change = TARGET.diff(RunningState(state, {}), replace(state, ports=(believed, second)), CAPABILITIES)
    assert change.text.startswith("# eth1: what arrives there\n")
    [step] = change.steps
    lines = step.stdin.splitlines()
    assert lines[:2] == ["qdisc replace dev eth1 clsact", "filter del dev eth1 ingress"]
    assert [line.split(" ")[5:11] for line in lines[2:]] == [
        ["protocol", family, "prio", preference, "flower", "ip_tos"]
        for family, preference in (("ip", "1"), ("ip", "1"), ("ipv6", "2"), ("ipv6", "2"))
    ]


def test_a_plan_without_shares_and_caps_needs_one_prio(plain_state: SwitchState) -> None:
    text = TARGET.render(plain_state, CAPABILITIES)["qdiscs.tc"]
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    handles = {match[1] for line in lines if (match := re.search(r"handle (\S+)", line))}
    assert handles == {"ffef:", "1:", "10:", *(f"10{number}:" for number in range(1, 6))}
    assert "qdisc replace dev eth2 parent 10:5 handle 105: bfifo limit 48448" in lines


@pytest.mark.parametrize("gradients", [1, 2])
def test_one_gradient_queue_needs_no_prio_of_its_own(state: SwitchState, gradients: int) -> None:
    port = state.ports[1]
    kept = (*port.queues[: 2 + gradients], port.queues[-1])
    queues = [replace(queue, queue=number) for number, queue in enumerate(kept, start=1)]
    spare = {dscp for queue in port.queues for dscp in queue.dscps}
    spare -= {dscp for queue in kept for dscp in queue.dscps}
    queues[-1] = replace(queues[-1], dscps=tuple(sorted({*queues[-1].dscps, *spare})))
    small = SwitchState((replace(port, queues=tuple(queues)),), ())
    files = TARGET.render(small, CAPABILITIES)
    assert TARGET.parse(files, CAPABILITIES) == small
    assert ("handle 30: prio bands 2" in files["qdiscs.tc"]) is (gradients == 2)
    parent = "30:1" if gradients == 2 else "20:1"
    assert f"parent {parent} handle 103: red" in files["qdiscs.tc"]


def test_a_share_without_a_queue_ahead_of_it() -> None:
    queues = (
        QueueState(1, (10,), 3000, BytesLimit(9000)),
        QueueState(2, (12,), 4000, BytesLimit(9000)),
        QueueState(3, tuple(n for n in range(64) if n not in (10, 12)), None, BytesLimit(9000), PortShare(7)),
    )
    port = PortState("eth1", trusted=True, shaped_bps=None, queues=queues)
    small = SwitchState((port,), ())
    files = TARGET.render(small, CAPABILITIES)
    assert TARGET.parse(files, CAPABILITIES) == small
    assert "qdisc replace dev eth1 root handle 20: drr" in files["qdiscs.tc"]
    assert "classid 20:2 drr quantum 2100" in files["qdiscs.tc"]


MUTATIONS = [
    ("qdisc replace dev eth1 parent 10:2 ", "qdisc replace dev eth2 parent 10:2 "),
    ("# eth1\n", "qdisc replace dev eth9 root handle ffef: pfifo\n"),
    ("\n# eth2\n", "filter add dev eth1 parent 10: protocol arp prio 2 flower classid 10:1\n"),
    ("dev eth2 root handle ffef: pfifo", "dev eth1 root handle ffef: pfifo"),
    ("dev eth1 ingress protocol ip ", "dev eth9 ingress protocol ip "),
    ("set 0x00 retain 0xfc pipe", "set 0x01 retain 0xfc pipe"),
    ("set 0x00 retain 0xfc pipe", "set 0x28 retain 0xfc pipe"),
    ("retain 0xfc pipe action csum ip4h", "retain 0xfc"),
    ("munge ip6 traffic_class", "munge ip dsfield"),
    ("filter del dev eth1 ingress\n", ""),
    ("qdisc replace dev eth2 clsact\n", ""),
    ("classid 20:2 drr quantum 1500", "classid 20:2 drr quantum 1501"),
    ("classid 20:2 drr quantum 1500", "classid 20:3 drr quantum 1500"),
    ("class replace dev eth1 parent 20: classid 20:2 drr quantum 1500\n", ""),
    ("handle 102: tbf rate 10000000bit burst 9230", "handle 102: tbf rate 10000000bit burst 1514"),
    ("handle 202: bfifo limit 48448", "handle 202: bfifo limit 48449"),
    ("handle 30: prio bands 2", "handle 30: prio bands 3"),
    ("parent 10:3 handle 20: drr", "parent 10:2 handle 20: drr"),
    ("filter add dev eth1 parent 20: protocol all prio 8 flower classid 20:2\n", ""),
    ("flower ip_tos 0x28/0xfc classid 20:1", "flower ip_tos 0x28/0xfc classid 30:1"),
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
    files = TARGET.render(state, CAPABILITIES)
    assert old in files["qdiscs.tc"]
    with pytest.raises(UserInputError) as caught:
        TARGET.parse(files | {"qdiscs.tc": files["qdiscs.tc"].replace(old, new, 1)}, CAPABILITIES)
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
    files = TARGET.render(state, CAPABILITIES)
    lines = files["routes.ip"].count("\n") + 1
    with pytest.raises(UserInputError) as caught:
        TARGET.parse(files | {"routes.ip": files["routes.ip"] + line + "\n"}, CAPABILITIES)
    assert caught.value.where == f"routes.ip:{lines}"


SEGMENT = "fd00:1::/128 encap seg6local action End dev eth2 proto 173"
SEGMENT_ROUTE = "fd00:2::/48 via fd00:3::2 dev eth2 proto 173"


@pytest.mark.parametrize(
    "lines",
    [
        [SEGMENT],
        [SEGMENT_ROUTE, SEGMENT.replace("eth2", "eth1")],
        [SEGMENT_ROUTE, SEGMENT.replace("::/", "::2/")],
        [SEGMENT_ROUTE, SEGMENT.replace("End", "End.X")],
        [SEGMENT_ROUTE, SEGMENT, SEGMENT.replace("fd00:1:", "fd00:4:")],
        [SEGMENT_ROUTE, SEGMENT, SEGMENT_ROUTE.replace("fd00:2:", "fd00:4:")],
        [SEGMENT_ROUTE, SEGMENT_ROUTE.replace("::2 ", "::3 ")],
        [SEGMENT_ROUTE.replace("fd00:3::2", "10.1.0.2")],
        [SEGMENT_ROUTE, "10.9.0.0/16 via 10.1.0.2 dev eth2 proto 173"],
    ],
)
def test_a_segment_out_of_place_is_refused(state: SwitchState, lines: list[str]) -> None:
    files = TARGET.render(state, CAPABILITIES)
    text = files["routes.ip"] + "".join(f"route replace {line}\n" for line in lines)
    with pytest.raises(UserInputError) as caught:
        TARGET.parse(files | {"routes.ip": text}, CAPABILITIES)
    assert caught.value.where == f"routes.ip:{text.count(chr(10))}"


@given(st.text(max_size=200))
def test_any_text_but_comments_is_refused(text: str) -> None:
    is_empty = all(re.fullmatch(r"#[\t -~]*|", line) for line in text.split("\n"))
    with contextlib.nullcontext() if is_empty else pytest.raises(UserInputError):
        assert TARGET.parse({"qdiscs.tc": text, "routes.ip": ""}, CAPABILITIES) == SwitchState((), ())


def test_missing_file_is_refused() -> None:
    with pytest.raises(UserInputError, match="the files are"):
        TARGET.parse({"qdiscs.tc": ""}, CAPABILITIES)


def test_a_changed_threshold_replaces_one_queue(state: SwitchState) -> None:
    port = state.ports[0]
    queues = tuple(
        replace(queue, ecn_threshold_bytes=5000) if queue.queue == 3 else queue for queue in port.queues
    )
    running = SwitchState((replace(port, queues=queues), *state.ports[1:]), state.routes)
    change = TARGET.diff(RunningState(running, {}), state, CAPABILITIES)
    assert [step.command for step in change.steps] == ["tc -batch -"]
    assert change.steps[0].stdin == (
        "qdisc replace dev eth1 parent 30:1 handle 103: red limit 200000 min 30280 max 30280 "
        "avpkt 977 burst 31 bandwidth 10gbit probability 1 ecn\n"
    )
    assert "min 5000" in change.text


def test_a_lost_port_is_built_anew_and_only_it(state: SwitchState) -> None:
    change = TARGET.diff(RunningState(SwitchState(state.ports[1:], state.routes), {}), state, CAPABILITIES)
    lines = change.steps[0].stdin.splitlines()
    assert lines[0] == "qdisc replace dev eth1 clsact"
    assert {line.split(" dev ")[1].split()[0] for line in lines} == {"eth1"}


def test_routes_that_are_no_longer_wanted_are_removed(state: SwitchState) -> None:
    change = TARGET.diff(RunningState(state, {}), SwitchState(state.ports, state.routes[1:]), CAPABILITIES)
    assert [step.stdin for step in change.steps] == [
        "route del 10.100.0.0/16 via 10.1.0.2 dev eth2 proto 173\n"
    ]


def test_names_that_linux_refuses_are_named(small_plan: Plan) -> None:
    plan = _with_pattern(small_plan, "Ethernet1/1/1/{n}")
    with pytest.raises(UnsupportedPlanError, match="is no name for a port"):
        TARGET.fit_to_hardware(plan, "leaf1")


def test_a_rate_of_broken_bytes_is_refused(small_plan: Plan) -> None:
    fitted = TARGET.fit_to_hardware(small_plan, "leaf1")
    ports = tuple(replace(port, shaped_bps=1_000_001) for port in fitted.state.ports)
    with pytest.raises(UnsupportedPlanError, match="whole bytes per second"):
        TARGET.render(replace(fitted.state, ports=ports), CAPABILITIES)


@given(st.integers(8, 10**12))
def test_shaper_lets_the_largest_frame_pass(rate_bps: int) -> None:
    assert shaper_burst_bytes(rate_bps) >= 9216 + 14


def _with_pattern(plan: Plan, pattern: str) -> Plan:
    document = plan.fabric.model_dump(mode="json", by_alias=True)
    for group in ("spines", "leaves"):
        document["topology"]["leaf_spine"][group]["port_names"]["pattern"] = pattern
    document["trusted_ports"] = "all"
    return Plan.model_validate(plan.model_dump(mode="json", by_alias=True) | {"fabric": document})
