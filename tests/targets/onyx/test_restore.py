"""Ways back from a push on Onyx that went wrong once."""

import pytest

from mltswitch.errors import DeviceError
from mltswitch.targets.onyx import TARGET
from switchsim.onyx import OnyxDevice
from tests.targets.onyx.device import CAPABILITIES, read

PLAN = """no cli default prefix-modes enable
interface ethernet 1/1 traffic-class 6 dcb ets strict
interface ethernet 1/1 no traffic-class 6 congestion-control
interface ethernet 1/1 no qos rewrite dscp
interface ethernet 1/1 traffic-class 6 bind switch-priority 6
interface ethernet 1/1 qos map dscp 0 48 49 50 51 52 53 54 55 to switch-priority 6
interface ethernet 1/1 qos trust L3
"""


def test_a_value_without_a_command_is_named_before_the_push() -> None:
    """`dwrr` is a word that no source of ours has."""
    wanted = TARGET.parse({"mltswitch.txt": PLAN}, CAPABILITIES)
    running = read(OnyxDevice(), wanted)
    answers = {query: answer.replace("WRR", "DWRR") for query, answer in running.answers.items()}
    with pytest.raises(DeviceError, match="traffic-class 6 scheduling dwrr 12") as caught:
        TARGET.restore(answers, running, wanted, CAPABILITIES)
    assert caught.value.where == "port 1/1"
    assert "before the push" in caught.value.hint


def test_routes_that_go_with_another_distance_are_set_again() -> None:
    """A removal names no distance, so it takes all routes to a next hop with it."""
    line = "ip route vrf default 10.1.0.0/16 10.0.0.1"
    wanted = TARGET.parse({"mltswitch.txt": f"{PLAN}{line}\n"}, CAPABILITIES)
    answers = read(OnyxDevice(), wanted).answers
    before = {**answers, "show running-config": f"{line}\n{line} 5\n"}
    now = {**answers, "show running-config": f"{line}\n{line} 5\n{line} 6\n"}
    change = TARGET.restore(before, TARGET.read(now, wanted, CAPABILITIES), wanted, CAPABILITIES)
    assert [step.command for step in change.steps[1:]] == [f"no {line}", line, f"{line} 5"]
