"""What each packet is tagged with: a class by its layer, and whether it is important.

`priorities` reads plans and is imported where one is given: it takes a second that no other sender needs.
"""

from mltswitch.hostagent.tagging.magnitude import ByMagnitude
from mltswitch.hostagent.tagging.named import DEFAULT_POLICY, POLICIES, policy_named
from mltswitch.hostagent.tagging.policies import (
    AllImportant,
    ByFunction,
    ByPosition,
    End,
    NoneImportant,
    by_layer,
)
from mltswitch.hostagent.tagging.tos import (
    are_important,
    checked_dscp,
    congestion_marked,
    is_congestion_marked,
    is_important,
    tos,
    tos_bytes,
)
from mltswitch.hostagent.tagging.two_queues import TwoQueues

__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "AllImportant",
    "ByFunction",
    "ByMagnitude",
    "ByPosition",
    "End",
    "NoneImportant",
    "TwoQueues",
    "are_important",
    "by_layer",
    "checked_dscp",
    "congestion_marked",
    "is_congestion_marked",
    "is_important",
    "policy_named",
    "tos",
    "tos_bytes",
]
