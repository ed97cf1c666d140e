"""Counters of every platform, read from answers as the platforms' own tests and manuals have them."""

import json
from typing import Any, Final

import pytest

from mltswitch.errors import DeviceError
from mltswitch.measure.acceptance import READERS
from mltswitch.measure.acceptance.counters import NOT_READ, QueueCounters
from mltswitch.targets import targets

RED: Final = {"kind": "red", "handle": "103:", "marked": 7, "early": 5, "pdrop": 2}
ONYX: Final = [
    {"Interface ethernet": "1/1", "ECN marked packets": "1,234"},
    *({"header": f"TC-{number}", "RED dropped packets": str(number)} for number in range(8)),
]
ONYX_QUERY: Final = "show interfaces ethernet 1/1 congestion-control | json-print"
WRED: Final = {
    "wreddroppacket": "5",
    "wreddropbytes": "7570",
    "ecnmarkedpacket": "1,007",
    "ecnmarkedbytes": "9",
}
NA: Final = dict.fromkeys(WRED, "N/A")
CELLS: Final = {"arrived": 99, "forwarded_marked": 7, "dropped_unimportant": 5, "dropped_limit": 2}
FRAMES: Final = {"tx-frames": 99, "tx-uc-buffer-discards": 3, "wred-discards": 5}


@pytest.mark.parametrize(
    ("platform", "port", "command", "answer", "counters"),
    [
        ("linux", "eth1", "tc -s -j qdisc show dev eth1", [{"kind": "prio", "handle": "1:"}, RED], (7, 5, 2)),
        (
            "onyx",
            "1/1",
            ONYX_QUERY,
            ONYX,
            (1234, 3, None),
        ),
        (
            "cumulus",
            "swp1",
            "nv show interface swp1 counters qos -o json",
            {"egress-queue-stats": {"3": FRAMES | {"ecn-marked-frames": 7}}},
            (7, 5, None),
        ),
        (
            "cumulus",
            "swp1",
            "nv show interface swp1 counters qos -o json",
            {"egress-queue-stats": {"3": FRAMES}},
            (None, 5, None),
        ),
        (
            "sonic",
            "Ethernet0",
            "show queue wredcounters --json Ethernet0",
            {"Ethernet0": {"UC3": WRED, "time": "now"}},
            (1007, 5, None),
        ),
        (
            "eos",
            "Ethernet1/1",
            "show qos interfaces ecn counters queue | json",
            {"intfQueueCounters": {"Ethernet1/1": {"queueCounters": {"3": "123", "4": "-"}}}},
            (123, None, None),
        ),
        ("bmv2", "s1-eth2", "counters", {"2 3": CELLS}, (7, 5, 2)),
    ],
)
def test_readers(
    platform: str, port: str, command: str, answer: Any, counters: tuple[int | None, ...]
) -> None:
    asked: list[str] = []

    def ask(text: str) -> str:
        asked.append(text)
        return f"Last command took a second\n{json.dumps(answer)}\nswitch # "

    assert READERS[platform].read(ask, port, 3) == QueueCounters(*counters)
    assert asked == [command]


@pytest.mark.parametrize("platform", READERS)
@pytest.mark.parametrize("answer", ["", "% Invalid input", "[]", "{}", "[1, 2]", '{"a": ', "null"])
def test_answers_that_are_none(platform: str, answer: str) -> None:
    with pytest.raises(DeviceError, match=r"port eth1: .*(cannot be read|has no RED counters)"):
        READERS[platform].read(lambda _: answer, "eth1", 3)


@pytest.mark.parametrize(
    ("platform", "answer"),
    [
        ("sonic", {"eth1": {"UC3": NA}}),
        ("eos", {"intfQueueCounters": {"eth1": {"queueCounters": {"3": "-"}}}}),
    ],
)
def test_chips_that_do_not_count(platform: str, answer: Any) -> None:
    with pytest.raises(DeviceError, match="the chip does not count marks or drops of queue 3"):
        READERS[platform].read(lambda _: json.dumps(answer), "eth1", 3)


def test_every_platform_is_read_or_has_a_reason() -> None:
    assert set(READERS) | set(NOT_READ) == set(targets())
    assert not set(READERS) & set(NOT_READ)
