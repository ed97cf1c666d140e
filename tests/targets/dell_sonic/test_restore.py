"""The way back from any point of a push leads to exactly what ran before."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.plan import Plan
from mltswitch.targets import Change
from mltswitch.targets.dell_sonic import TARGET
from switchsim.dell_sonic import DellSonicDevice
from tests.targets.dell_sonic.device import apply, read, session_of
from tests.targets.dell_sonic.test_dell_sonic import STATE
from tests.targets.dell_sonic.test_laws import CAPABILITIES, PLANS, few, foreign_lines, lots, state_of


def alter_objects_of_ours(data: st.DataObject, device: DellSonicDevice) -> None:
    """What somebody may have changed in them by hand."""
    running = device.configuration
    curve = "green minimum-threshold 7 maximum-threshold 9 drop-probability 50"
    for head in running.heads("qos wred-policy"):
        lines = data.draw(st.sets(st.sampled_from(["ecn none", "no ecn", curve])))
        device.configure(head, *lines)
    for head in running.heads("qos scheduler-policy"):
        lines = data.draw(st.sets(st.sampled_from(["type dwrr", "pir 400000", "no pir"])))
        device.configure(head, "queue 5", "type strict", *lines)
        if data.draw(st.booleans()):
            device.configure(head, "port", "pir 9000")
    for kind, word, target in (("dscp-tc", "dscp", "traffic-class"), ("tc-queue", "traffic-class", "queue")):
        for head in running.heads(f"qos map {kind}"):
            lines = data.draw(st.sets(st.sampled_from([f"{word} 3 {target} 2", f"no {word} 5"])))
            device.configure(head, *lines)


@settings(few)
@given(st.data(), PLANS, PLANS, foreign_lines())
def test_the_way_back_leads_to_what_ran(
    data: st.DataObject, former: Plan, plan: Plan, lines: list[str]
) -> None:
    device = DellSonicDevice()
    first = state_of(data, former)
    wanted = data.draw(st.sampled_from([state_of(data, plan), first]))
    if data.draw(st.booleans()):
        apply(device, TARGET.diff(read(device, first), first, CAPABILITIES))
    if data.draw(st.booleans()):
        assert device.configure(*lines) == ""
    if data.draw(st.booleans()):
        alter_objects_of_ours(data, device)
    for route in data.draw(st.lists(st.sampled_from([*wanted.routes, None]), max_size=3)):
        if route is not None:
            ways = ("blackhole", "blackhole 9", f"{route.next_hop} tag 5 7", "10.9.9.9 3", "10.9.9.9")
            device.configure(f"ip route {route.prefix} {data.draw(st.sampled_from(ways))}")
    before = read(device, wanted).answers
    at_start = device.configuration
    steps = TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps
    session = session_of(device, "configure terminal")
    for step in steps[: data.draw(st.just(len(steps)) | st.integers(0, len(steps)))]:
        assert session.enter(step.command).text == ""

    def way_back() -> Change:
        return TARGET.restore(before, read(device, wanted), wanted, CAPABILITIES)

    apply(device, way_back())
    assert device.configuration == at_start
    assert way_back().is_empty


@settings(few, max_examples=10)
@given(st.data(), PLANS, PLANS, foreign_lines())
def test_no_queue_drops_earlier_on_the_way_back_than_at_both_ends(
    data: st.DataObject, former: Plan, plan: Plan, lines: list[str]
) -> None:
    device = DellSonicDevice()
    first, wanted = state_of(data, former), state_of(data, plan)
    if data.draw(st.booleans()):
        apply(device, TARGET.diff(read(device, first), first, CAPABILITIES))
    else:
        assert device.configure(*lines) == ""
    before = read(device, wanted)
    apply(device, TARGET.diff(before, wanted, CAPABILITIES))
    change = TARGET.restore(before.answers, read(device, wanted), wanted, CAPABILITIES)
    names = [port.name for port in wanted.ports]
    queues = frozenset(queue.queue for port in wanted.ports for queue in port.queues if not queue.is_lossless)
    session = session_of(device, "configure terminal")
    seen = [lots(device.configuration, names, queues)]
    for step in change.steps:
        assert session.enter(step.command).text == ""
        seen.append(lots(device.configuration, names, queues))
    for between in {tuple(step): step for step in seen}.values():
        for now, start, end in zip(between, seen[0], seen[-1], strict=True):
            assert all(now[kind] >= min(start[kind], end[kind]) for kind in (0, 1))


def test_a_policy_map_that_a_push_removed_comes_back_with_all_that_stands_in_it() -> None:
    device = DellSonicDevice()
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    ports = tuple(replace(port, trusted=True, rewritten=()) for port in STATE.ports)
    plain = replace(STATE, ports=ports, background_dscp=0)
    before, at_start = read(device, plain).answers, device.configuration
    apply(device, TARGET.diff(read(device, plain), plain, CAPABILITIES))
    assert "mltswitch-rewrite" not in str(device.configuration)
    apply(device, TARGET.restore(before, read(device, plain), plain, CAPABILITIES))
    assert device.configuration == at_start
