"""A way back from a push on Enterprise SONiC that went wrong once."""

from dataclasses import replace

from tests.targets.dell_sonic.device import CAPABILITIES
from tests.targets.dell_sonic.test_dell_sonic import STATE
from tests.targets.dell_sonic.under_test import DellSonicUnderTest


def test_a_policy_map_that_a_push_removed_comes_back_with_all_that_stands_in_it() -> None:
    switch = DellSonicUnderTest(CAPABILITIES)
    switch.push(STATE)
    ports = tuple(replace(port, trusted=True, rewritten=()) for port in STATE.ports)
    plain = replace(STATE, ports=ports, background_dscp=0)
    before, at_start = switch.read(plain), switch.configuration()
    switch.push(plain)
    assert "mltswitch-rewrite" not in str(switch.device.configuration)
    switch.apply(switch.way_back(before, plain))
    assert switch.configuration() == at_start
