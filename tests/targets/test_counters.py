"""Counters of queues, read from answers as each platform's own sources have them."""

import json
from typing import Any, Final

import pytest

from mltswitch.errors import DeviceError
from mltswitch.targets import target_for, targets
from mltswitch.targets.base import EgressCounters

RED: Final = {
    "kind": "red",
    "handle": "103:",
    "dev": "eth1",
    "parent": "30:1",
    "options": {"limit": 200000, "ecn": True},
    "bytes": 9084,
    "packets": 6,
    "drops": 7,
    "overlimits": 12,
    "requeues": 0,
    "backlog": 3028,
    "qlen": 2,
    "marked": 7,
    "early": 5,
    "pdrop": 2,
    "other": 0,
}
PLAIN: Final = {key: value for key, value in RED.items() if key not in ("marked", "early", "pdrop", "other")}
TBF: Final = PLAIN | {"kind": "tbf", "drops": 70}
BELOW: Final = PLAIN | {"kind": "bfifo", "handle": "203:", "parent": "103:1"}
COUNTED: Final = {"totalpacket": "1,006", "totalbytes": "9084", "droppacket": "7", "dropbytes": "70"}
WRED: Final = {"wreddroppacket": "5", "wreddropbytes": "7570", "ecnmarkedpacket": "7", "ecnmarkedbytes": "9"}
NA: Final = dict.fromkeys(WRED, "N/A")
FRAMES: Final = {"tx-frames": 6, "tx-bytes": 9084, "tx-uc-buffer-discards": 2, "wred-discards": 5}
CELLS: Final = {"forwarded_unmarked": 2, "forwarded_marked": 4, "dropped_unimportant": 5, "dropped_limit": 2}
OTHERS: Final = {"kind": "fq_codel", "handle": "0:", "dev": "eth0", "root": True, "options": {}}
NO_COMMAND: Final = 'Error: No such command "wredcounters".'


ONYX: Final = [
    {"Interface ethernet": "1/1", "ECN marked packets": "1,234"},
    *({"header": f"TC-{number}", "RED dropped packets": str(number)} for number in range(8)),
]
CE, EARLY, FULL = "ce_marked_packets", "dropped_at_threshold_packets", "dropped_at_limit_packets"
SENT: Final = {"sent_bytes": 9084, "sent_packets": 6, "dropped_packets": 7}
OF_SONIC: Final = SENT | {"sent_packets": 1006}


@pytest.mark.parametrize(
    ("platform", "port", "answers", "counters"),
    [
        ("linux", "eth1", [[OTHERS, RED]], SENT | {"depth_bytes": 3028, CE: 7, EARLY: 5, FULL: 2}),
        ("linux", "eth1", [[OTHERS, TBF, BELOW]], SENT | {"depth_bytes": 3028, CE: 0}),
        ("linux", "eth1", [[OTHERS]], None),
        ("sonic", "Ethernet0", [{"Ethernet0": {"UC3": COUNTED}}, NO_COMMAND], OF_SONIC),
        ("sonic", "Ethernet0", [{"Ethernet0": {"UC3": COUNTED}}, {"Ethernet0": {"UC3": NA}}], OF_SONIC),
        (
            "sonic",
            "Ethernet0",
            [{"Ethernet0": {"ALL3": COUNTED}}, {"Ethernet0": {"ALL3": WRED, "time": "now"}}],
            OF_SONIC | {CE: 7, EARLY: 5},
        ),
        ("cumulus", "swp1", [{"egress-queue-stats": {"3": FRAMES}}], SENT | {EARLY: 5}),
        (
            "cumulus",
            "swp1",
            [{"egress-queue-stats": {"3": FRAMES | {"ecn-marked-frames": 7}}}],
            SENT | {CE: 7, EARLY: 5},
        ),
        (
            "bmv2",
            "eth2",
            [{"2 3": CELLS}],
            {"admitted_packets": 6, "dropped_packets": 7, CE: 4, EARLY: 5, FULL: 2},
        ),
        ("onyx", "1/1", [ONYX], {CE: 1234, EARLY: 3}),
        (
            "eos",
            "Ethernet1/1",
            [{"intfQueueCounters": {"Ethernet1/1": {"queueCounters": {"3": "123", "4": "-"}}}}],
            {CE: 123},
        ),
        ("eos", "Ethernet1", [{"intfQueueCounters": {"Ethernet1": {"queueCounters": {"3": "-"}}}}], {}),
    ],
)
def test_what_is_counted(
    platform: str, port: str, answers: list[Any], counters: dict[str, int] | None
) -> None:
    source = target_for(platform).counters
    assert source is not None
    texts = [each if isinstance(each, str) else f"took a second\n{json.dumps(each)}\n# " for each in answers]
    found = source.read(dict(zip(source.queries([port]), texts, strict=True)), [(port, 3)])
    assert found == ({} if counters is None else {(port, 3): EgressCounters(**counters)})


@pytest.mark.parametrize("platform", [name for name, each in targets().items() if each.counters])
@pytest.mark.parametrize("answer", ["% Invalid input", "[1, 2]", '{"a": ', "null"])
def test_answers_that_are_none(platform: str, answer: str) -> None:
    source = target_for(platform).counters
    assert source is not None
    with pytest.raises(DeviceError):
        source.read(dict.fromkeys(source.queries(["eth1"]), answer), [("eth1", 3)])


BEYOND: Final = 10**400
"""What no counter of a switch holds, and no rate can be computed of."""


@pytest.mark.parametrize(
    ("platform", "answers"),
    [
        ("linux", [[RED | {"bytes": BEYOND}]]),
        ("sonic", [{"eth1": {"UC3": COUNTED | {"totalbytes": BEYOND}}}, NO_COMMAND]),
        ("cumulus", [{"egress-queue-stats": {"3": FRAMES | {"tx-bytes": BEYOND}}}]),
        ("eos", [{"intfQueueCounters": {"eth1": {"queueCounters": {"3": str(BEYOND)}}}}]),
    ],
)
def test_numbers_beyond_counters_are_the_devices_fault(platform: str, answers: list[Any]) -> None:
    source = target_for(platform).counters
    assert source is not None
    texts = [each if isinstance(each, str) else json.dumps(each) for each in answers]
    with pytest.raises(DeviceError, match=r"form|less than|counter"):
        source.read(dict(zip(source.queries(["eth1"]), texts, strict=True)), [("eth1", 3)])


def test_every_platform_is_read_or_has_a_reason() -> None:
    assert all((target.counters is None) == bool(target.no_counters) for target in targets().values())
