"""Rate control as a plan has it."""

import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.transport.planned_rate import rate_settings
from mltswitch.hostagent.transport.rate import RateSettings
from mltswitch.plan import Plan


def test_settings_of_a_plan(lab_plan: Plan) -> None:
    host = lab_plan.topology.hosts[0]
    leaf = lab_plan.topology.switch(host.leaf)
    port = lab_plan.port_profile(leaf, leaf.port(host.leaf_port))
    found = rate_settings(lab_plan, host.name)
    share = lab_plan.gradient_classes[0].rate_cap_share
    assert found.cap_bps == port.rate_bps * (share or 1)
    largest = max(q.ecn_threshold_bytes or 0 for q in port.queues)
    assert found == RateSettings.for_network(port.rate_bps, queue_bytes=largest, cap_share=share or 1.0)
    with pytest.raises(UserInputError, match="no host 'nobody'"):
        rate_settings(lab_plan, "nobody")
