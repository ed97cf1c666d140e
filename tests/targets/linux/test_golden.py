"""Files and answers kept as they were: the text an operator sees changes only on purpose."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import DeviceError
from mltswitch.targets import SwitchState
from mltswitch.targets.linux import TARGET
from mltswitch.targets.linux.foreign import RULES_QUERY
from mltswitch.targets.linux.lines import shaper_burst_bytes

CAPABILITIES = TARGET.hardware(None)

GOLDEN = Path(__file__).parent / "golden"
ANSWERS = GOLDEN / "answers.json"


def test_rendered_files(state: SwitchState) -> None:
    rendered = TARGET.render(state, CAPABILITIES)
    assert rendered == {name: (GOLDEN / name).read_text() for name in rendered}


def answers() -> dict[str, str]:
    """What Linux 6.1 with iproute2 6.1 answered when it ran the golden files.

    `pytest tests/targets/linux/test_kernel.py -k second_load --update-golden` asks again.
    """
    recorded: dict[str, str] = json.loads(ANSWERS.read_text())
    return recorded


def test_recorded_answers_are_the_plan(state: SwitchState) -> None:
    assert tuple(answers()) == TARGET.queries(state)
    found = TARGET.read(answers(), state, CAPABILITIES)
    assert found.state == state
    assert TARGET.diff(found, state, CAPABILITIES).is_empty


def test_other_spellings_of_newer_tools_are_read(state: SwitchState) -> None:
    spelled = {
        query: text.replace('"ip_tos_mask":"fc"', '"ip_tos_mask":252').replace(
            '"ip_tos":192', '"ip_tos":"0xc0"'
        )
        for query, text in answers().items()
    }
    assert spelled != answers()
    assert TARGET.read(spelled, state, CAPABILITIES).state == state


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("qdisc prio 10: root", "cannot be read"),
        ('[{"kind": "prio"}]', "handle"),
        ("{}", "cannot be read"),
    ],
)
def test_an_answer_that_is_no_list_of_queues_is_the_devices_fault(
    state: SwitchState, text: str, problem: str
) -> None:
    with pytest.raises(DeviceError, match=problem):
        TARGET.read(answers() | {"tc -j -d qdisc show": text}, state, CAPABILITIES)


def test_a_filter_query_that_was_answered_in_part(state: SwitchState) -> None:
    """Without every line, nobody knows which place a line is of."""
    query, text = next((query, text) for query, text in answers().items() if "filter show" in query)
    with pytest.raises(DeviceError, match="answered 9 lines, not 10"):
        TARGET.read(answers() | {query: text.partition("\n")[2]}, state, CAPABILITIES)


def test_a_query_that_was_never_answered(state: SwitchState) -> None:
    with pytest.raises(DeviceError, match="was not answered"):
        TARGET.read({}, state, CAPABILITIES)


def test_routes_of_another_family_are_refused(state: SwitchState) -> None:
    route = json.dumps([{"dst": "fd00::/64", "dev": "eth1", "gateway": "10.0.0.1", "protocol": "173"}])
    with pytest.raises(DeviceError, match="no IPv4 prefix"):
        TARGET.read(answers() | {"ip -j -d -N route show": route}, state, CAPABILITIES)


def test_a_default_route_of_ours_is_seen(state: SwitchState) -> None:
    route = json.dumps([{"dst": "default", "dev": "eth1", "gateway": "10.0.0.1", "protocol": "173"}])
    found = TARGET.read(answers() | {"ip -j -d -N route show": route}, state, CAPABILITIES)
    assert str(found.state.routes[0].prefix) == "0.0.0.0/0"


SHAPER = '"rate":12500000,"burst":"9Kb/1","mpu":0,"lat":0,"linklayer":"ethernet"'


def unexpected(state: SwitchState, old: str, new: str) -> list[str]:
    """What the reader finds in the recorded queues after one edit."""
    text = answers()["tc -j -d qdisc show"]
    assert old in text
    edited = answers() | {"tc -j -d qdisc show": text.replace(old, new, 1)}
    return [
        fault for port in TARGET.read(edited, state, CAPABILITIES).state.ports for fault in port.unexpected
    ]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"burst":"9Kb/1"', '"burst":"10Kb/1"', "shaper burst 10Kb/1"),
        ('"burst":"9Kb/1"', '"burst":"9300b/1"', "shaper burst 9300b/1"),
        ('"burst":"9Kb/1",', "", "shaper burst None"),
        ('"lat":0', '"lat":862', "shaper lat 862"),
        ('"lat":0', '"limit":5000', "shaper limit 5000"),
        ('"mpu":0', '"mpu":64', "shaper mpu 64"),
        ('"lat":0', '"lat":0,"overhead":20', "shaper overhead 20"),
        ('"lat":0', '"lat":0,"peakrate":25000000', "shaper peakrate 25000000"),
        ('"linklayer":"ethernet"', '"linklayer":"atm"', "shaper linklayer atm"),
        (
            '{"kind":"bfifo","handle":"101:","dev":"eth2"',
            '{"kind":"pfifo","handle":"203:","dev":"eth2","parent":"103:1"},'
            '{"kind":"bfifo","handle":"101:","dev":"eth2"',
            "pfifo 203: below 103:1",
        ),
        (
            '{"kind":"prio","handle":"10:","dev":"eth2"',
            '{"kind":"ingress","handle":"ffff:","dev":"eth2","parent":"ffff:fff1"},'
            '{"kind":"prio","handle":"10:","dev":"eth2"',
            "ingress ffff: below ffff:fff1",
        ),
    ],
)
def test_every_setting_that_is_not_ours_is_named(state: SwitchState, old: str, new: str, fault: str) -> None:
    assert unexpected(state, old, new) == [fault]


@pytest.mark.parametrize(
    "spelling",
    [
        '"rate":12500000,"burst":9225,"lat":0',
        '"rate":12500000,"burst":"9230b/1","mpu":"0b","limit":9230,"linklayer":"ethernet"',
    ],
)
def test_other_spellings_of_the_shaper_are_read(state: SwitchState, spelling: str) -> None:
    assert unexpected(state, SHAPER, spelling) == []


@given(st.integers(10**5, 5 * 10**10))
def test_our_own_shaper_is_recognised_as_tc_prints_it(state: SwitchState, rate_bytes_per_second: int) -> None:
    """tc counts whole microseconds, and shortens what is near a multiple of 1024 (lib/utils_math.c)."""
    limit_bytes = shaper_burst_bytes(rate_bytes_per_second * 8)
    burst_microseconds = int(1e6 * limit_bytes / rate_bytes_per_second)
    burst_bytes = int(rate_bytes_per_second * burst_microseconds / 1e6)
    latency = int(1e6 * limit_bytes / rate_bytes_per_second - burst_microseconds)
    text = f"{burst_bytes}b"
    for unit_bytes, name, near_bytes in ((2**20, "Mb", 2**10), (2**10, "Kb", 16)):
        count = round(burst_bytes / unit_bytes)
        if burst_bytes >= unit_bytes and abs(unit_bytes * count - burst_bytes) < near_bytes:
            text = f"{count}{name}"
            break
    shaper = (
        f'"rate":{rate_bytes_per_second},"burst":"{text}/1","mpu":0,"lat":{latency},"linklayer":"ethernet"'
    )
    assert unexpected(state, SHAPER, shaper) == []


def test_queues_of_somebody_else_are_shown_before_they_go(state: SwitchState) -> None:
    entries = [
        {"kind": "htb", "handle": "1:", "dev": "eth1", "root": True},
        {"kind": "fq_codel", "handle": "8002:", "dev": "eth1", "parent": "1:10"},
        {"kind": "fq_codel", "handle": "0:", "dev": "eth2", "root": True},
    ]
    found = TARGET.read(answers() | {"tc -j -d qdisc show": json.dumps(entries)}, state, CAPABILITIES)
    shown = [line for line in TARGET.diff(found, state, CAPABILITIES).text.splitlines() if "removes" in line]
    assert shown == [
        "# eth1: removes root htb 1:, which has no way back",
        "# eth1: removes fq_codel 8002: below 1:10",
    ]


def test_rules_that_the_user_may_not_read_are_told(state: SwitchState) -> None:
    found = TARGET.read(
        answers() | {RULES_QUERY: "not read: nft\nnot read: ip6tables\n"}, state, CAPABILITIES
    )
    assert [note.partition(" cannot")[0] for note in found.notes[-2:]] == [
        "rules of nft",
        "rules of ip6tables",
    ]


@pytest.mark.parametrize("stands", ["[]", answers()["tc -j -d qdisc show"]])
def test_a_filter_of_incoming_packets_is_not_ours_to_remove(state: SwitchState, stands: str) -> None:
    entry = {"kind": "ingress", "handle": "ffff:", "dev": "eth2", "parent": "ffff:fff1"}
    queues = json.dumps([*json.loads(stands), entry])
    found = TARGET.read(answers() | {"tc -j -d qdisc show": queues}, state, CAPABILITIES)
    with pytest.raises(DeviceError, match="eth2 has ingress") as caught:
        TARGET.diff(found, state, CAPABILITIES)
    assert caught.value.hint.endswith("tc qdisc del dev eth2 ingress")


@pytest.mark.parametrize(
    ("prefix", "is_ours"),
    [
        ("10.100.0.0/16", True),
        ("10.100.3.0/24", True),
        ("10.100.0.1", True),
        ("10.96.0.0/12", False),
        ("10.101.0.0/24", False),
        ("default", False),
    ],
)
def test_a_route_of_somebody_else_counts_inside_an_alias_prefix(
    state: SwitchState, prefix: str, is_ours: bool
) -> None:
    query = "ip -j -d -N route show"
    route = {"type": "6", "dst": prefix, "protocol": "4", "metric": 20, "nexthops": [{}]}
    found = answers() | {query: json.dumps([*json.loads(answers()[query]), route])}
    if not is_ours:
        assert TARGET.read(found, state, CAPABILITIES).state == state
        return
    with pytest.raises(DeviceError, match="lies within an alias prefix") as caught:
        TARGET.read(found, state, CAPABILITIES)
    assert caught.value.hint.endswith(f"ip route del {prefix} proto 4")
