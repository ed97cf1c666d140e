"""A push that nobody keeps is gone after its time; one that is kept stays."""

import time

import pytest

from mltswitch.plan import Plan
from mltswitch.targets import SwitchState
from mltswitch.targets.linux import TARGET
from tests.targets.linux.test_kernel import connect, do, empty, read
from tests.targets.linux.test_restore import CAPABILITIES, STARTS, lines_in, send, shown
from tests.targets.linux.uml import Machine

PATIENCE_SECONDS = 60.0


@pytest.mark.lab
@pytest.mark.parametrize("sent", [30, None], ids=["half of it", "all of it"])
def test_the_host_goes_back_by_itself(
    linux: Machine, small_plan: Plan, state: SwitchState, sent: int | None
) -> None:
    assert TARGET.timer is not None
    connect(linux, small_plan, "leaf1")
    do(linux, STARTS["fq_codel"])
    at_start, before = shown(linux), read(linux, state)
    push = TARGET.diff(before, state, CAPABILITIES)
    timed = TARGET.timer.arm(push, before.answers, state, f"push-{sent}", 8)
    arm, *rest = timed.steps
    assert tuple(rest) == push.steps
    do(linux, arm.command, arm.stdin)
    send(linux, push.steps, lines_in(push) if sent is None else sent)
    end = time.monotonic() + PATIENCE_SECONDS
    while do(linux, "ls /run/mltswitch") and time.monotonic() < end:
        time.sleep(1)
    assert shown(linux) == at_start
    [keep] = TARGET.timer.keep(f"push-{sent}")
    do(linux, keep.command)
    do(linux, f"touch /run/mltswitch/push-{sent}")
    with pytest.raises(AssertionError):  # on its way back
        do(linux, keep.command)
    do(linux, f"rm /run/mltswitch/push-{sent}")
    empty(linux)


@pytest.mark.lab
def test_what_is_kept_stays(linux: Machine, small_plan: Plan, state: SwitchState) -> None:
    assert TARGET.timer is not None
    connect(linux, small_plan, "leaf1")
    before = read(linux, state)
    push = TARGET.diff(before, state, CAPABILITIES)
    timed = TARGET.timer.arm(push, before.answers, state, "kept", 6)
    for step in (*timed.steps, *TARGET.timer.keep("kept")):
        do(linux, step.command, step.stdin)
    time.sleep(8)
    assert TARGET.diff(read(linux, state), state, CAPABILITIES).is_empty
    empty(linux)
