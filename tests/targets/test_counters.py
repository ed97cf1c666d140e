"""Counters of queues, read from answers as each platform's own sources have them."""

import json
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from mltswitch.errors import DeviceError
from mltswitch.targets import SwitchState, target_for, targets
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


def wanted(port: str) -> SwitchState:
    queues = [SimpleNamespace(queue=3)]
    return cast("SwitchState", SimpleNamespace(ports=[SimpleNamespace(name=port, queues=queues)]))


@pytest.mark.parametrize(
    ("platform", "port", "answers", "counters"),
    [
        ("linux", "eth1", [[OTHERS, RED]], (3028, 9084, 6, 7, 7)),
        ("linux", "eth1", [[OTHERS, TBF, BELOW]], (3028, 9084, 6, 7, 0)),
        ("linux", "eth1", [[OTHERS]], None),
        ("sonic", "Ethernet0", [{"Ethernet0": {"UC3": COUNTED}}, NO_COMMAND], (None, 9084, 1006, 7, None)),
        (
            "sonic",
            "Ethernet0",
            [{"Ethernet0": {"UC3": COUNTED}}, {"Ethernet0": {"UC3": NA}}],
            (None, 9084, 1006, 7, None),
        ),
        (
            "sonic",
            "Ethernet0",
            [{"Ethernet0": {"ALL3": COUNTED}}, {"Ethernet0": {"ALL3": WRED}}],
            (None, 9084, 1006, 7, 7),
        ),
        ("cumulus", "swp1", [{"egress-queue-stats": {"3": FRAMES}}], (None, 9084, 6, 7, None)),
        (
            "cumulus",
            "swp1",
            [{"egress-queue-stats": {"3": FRAMES | {"ecn-marked-frames": 7}}}],
            (None, 9084, 6, 7, 7),
        ),
        ("bmv2", "eth2", [{"2 3": CELLS}], (None, None, None, 7, 4, 6)),
    ],
)
def test_what_is_counted(
    platform: str, port: str, answers: list[Any], counters: tuple[int | None, ...] | None
) -> None:
    target, state = target_for(platform), wanted(port)
    assert target.counter_queries is not None
    assert target.read_counters is not None
    texts = [each if isinstance(each, str) else json.dumps(each) for each in answers]
    found = target.read_counters(dict(zip(target.counter_queries(state), texts, strict=True)), state)
    assert found == ({} if counters is None else {(port, 3): EgressCounters(*counters)})


@pytest.mark.parametrize("platform", [name for name, each in targets().items() if each.read_counters])
@pytest.mark.parametrize("answer", ["% Invalid input", "[1, 2]", '{"a": ', "null"])
def test_answers_that_are_none(platform: str, answer: str) -> None:
    target, state = target_for(platform), wanted("eth1")
    assert target.counter_queries is not None
    assert target.read_counters is not None
    with pytest.raises(DeviceError):
        target.read_counters(dict.fromkeys(target.counter_queries(state), answer), state)
