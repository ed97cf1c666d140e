"""Files and answers kept as they were: the text an operator sees changes only on purpose."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import DeviceError
from mltswitch.targets import RunningState, SwitchState
from mltswitch.targets.common import json_in
from mltswitch.targets.linux import TARGET
from mltswitch.targets.linux.answers import QDISC_QUERY, ROUTE_QUERY, filter_query
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


def read(state: SwitchState, changed: dict[str, str]) -> RunningState:
    """What is read where some answers are others."""
    return TARGET.read(answers() | changed, state, CAPABILITIES)


def edited(query: str, old: str, new: str) -> dict[str, str]:
    """The answer to a query with other words in the first place where the old ones stand."""
    text = answers()[query]
    assert old in text
    return {query: text.replace(old, new, 1)}


def with_entry(query: str, entry: dict[str, Any]) -> dict[str, str]:
    """The answer to a query with one entry more."""
    return {query: json.dumps([*json.loads(answers()[query]), entry])}


def test_recorded_answers_are_the_plan(state: SwitchState) -> None:
    assert tuple(answers()) == TARGET.queries(state)
    found = read(state, {})
    assert found.state == state
    assert TARGET.diff(found, state, CAPABILITIES).is_empty


def test_other_spellings_of_newer_tools_are_read(state: SwitchState) -> None:
    newer = {'"ip_tos_mask":"fc"': '"ip_tos_mask":252', '"ip_tos":192': '"ip_tos":"0xc0"'}
    text = answers()[filter_query(state)]
    for old, new in newer.items():
        assert old in text
        text = text.replace(old, new)
    assert read(state, {filter_query(state): text}).state == state


OUR_ROUTE = {"dev": "eth1", "gateway": "10.0.0.1", "protocol": "173"}


@pytest.mark.parametrize(
    ("query", "answer", "said"),
    [
        (QDISC_QUERY, "qdisc prio 10: root", "cannot be read"),
        (QDISC_QUERY, '[{"kind": "prio"}]', "handle"),
        (QDISC_QUERY, "{}", "cannot be read"),
        (ROUTE_QUERY, json.dumps([OUR_ROUTE | {"dst": "fd00::/64"}]), "no IPv4 prefix"),
    ],
)
def test_an_answer_that_is_none_is_the_devices_fault(
    state: SwitchState, query: str, answer: str, said: str
) -> None:
    with pytest.raises(DeviceError, match=said):
        read(state, {query: answer})


def test_a_query_that_was_answered_in_part_or_never(state: SwitchState) -> None:
    """Without every line, nobody knows which place a filter is of."""
    query = filter_query(state)
    with pytest.raises(DeviceError, match="answered 9 lines, not 10"):
        read(state, {query: answers()[query].partition("\n")[2]})
    with pytest.raises(DeviceError, match="was not answered"):
        TARGET.read({}, state, CAPABILITIES)


def test_a_default_route_of_ours_is_seen(state: SwitchState) -> None:
    found = read(state, {ROUTE_QUERY: json.dumps([OUR_ROUTE | {"dst": "default"}])})
    assert str(found.state.routes[0].prefix) == "0.0.0.0/0"


SHAPER = '"rate":12500000,"burst":"9Kb/1","mpu":0,"lat":0,"linklayer":"ethernet"'
FIFO, PRIO = '{"kind":"bfifo","handle":"101:","dev":"eth2"', '{"kind":"prio","handle":"10:","dev":"eth2"'
BELOW = '{"kind":"pfifo","handle":"203:","dev":"eth2","parent":"103:1"},'
ARRIVING = '{"kind":"ingress","handle":"ffff:","dev":"eth2","parent":"ffff:fff1"},'


def unexpected(state: SwitchState, old: str, new: str) -> list[str]:
    """What the reader finds in the recorded queues after one edit."""
    ports = read(state, edited(QDISC_QUERY, old, new)).state.ports
    return [fault for port in ports for fault in port.unexpected]


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
        (FIFO, BELOW + FIFO, "pfifo 203: below 103:1"),
        (PRIO, ARRIVING + PRIO, "ingress ffff: below ffff:fff1"),
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
    change = TARGET.diff(read(state, {QDISC_QUERY: json.dumps(entries)}), state, CAPABILITIES)
    assert [line for line in change.text.splitlines() if "removes" in line] == [
        "# eth1: removes root htb 1:, which has no way back",
        "# eth1: removes fq_codel 8002: below 1:10",
    ]


def test_rules_that_the_user_may_not_read_are_told(state: SwitchState) -> None:
    found = read(state, {RULES_QUERY: "not read: nft\nnot read: ip6tables\n"})
    told = [note.partition(" cannot")[0] for note in found.notes[-2:]]
    assert told == ["rules of nft", "rules of ip6tables"]


@pytest.mark.parametrize("stand", ["[]", answers()[QDISC_QUERY]])
def test_a_filter_of_incoming_packets_is_not_ours_to_remove(state: SwitchState, stand: str) -> None:
    entry = {"kind": "ingress", "handle": "ffff:", "dev": "eth2", "parent": "ffff:fff1"}
    found = read(state, {QDISC_QUERY: json.dumps([*json.loads(stand), entry])})
    with pytest.raises(DeviceError, match="eth2 has ingress") as caught:
        TARGET.diff(found, state, CAPABILITIES)
    assert caught.value.hint.endswith("tc qdisc del dev eth2 ingress")


def their_route(prefix: str) -> dict[str, str]:
    route = {"type": "6", "dst": prefix, "protocol": "4", "metric": 20, "nexthops": [{}]}
    return with_entry(ROUTE_QUERY, route)


@pytest.mark.parametrize("prefix", ["10.100.0.0/16", "10.100.3.0/24", "10.100.0.1"])
def test_a_route_of_somebody_else_counts_inside_an_alias_prefix(state: SwitchState, prefix: str) -> None:
    with pytest.raises(DeviceError, match="lies within an alias prefix") as caught:
        read(state, their_route(prefix))
    assert caught.value.hint.endswith(f"ip route del {prefix} proto 4")


@pytest.mark.parametrize("prefix", ["10.96.0.0/12", "10.101.0.0/24", "default"])
def test_a_route_of_somebody_else_elsewhere_does_not_count(state: SwitchState, prefix: str) -> None:
    assert read(state, their_route(prefix)).state == state


READ: dict[str, Any] = {
    '{"a": 1}': {"a": 1},
    'warning: no such thing\n[{"a": 1}]\n': [{"a": 1}],
    'leaf1 [standalone: master] # show | json\n{"a": {}}\nleaf1 [standalone: master] # ': {"a": {}},
    '{"a": 1, "a": 1}': {"a": 1},
    "[]": [],
}
REFUSED = {
    "": "no JSON, but ''",
    "% Invalid input [at marker]": "no JSON, but '% Invalid input",
    '[{"a": 1}, {"b": ': "cut short",
    '[\n {"a": 1},\n {"b": 2}': "cut short",
    '{"a": {fh 800: ht divisor 1 }}': 'at \'{"a": {fh 800: ht',
    '{"a": 1, "a": 2}': "'a' stands twice, as 1 and as 2",
    '{"a": 1}\n{"b": 2}\n': "more than one document: '{\"b\": 2}'",
}


@pytest.mark.parametrize("answer", READ)
def test_words_around_a_document_are_left_out(answer: str) -> None:
    assert json_in(answer) == READ[answer]


@pytest.mark.parametrize("answer", REFUSED)
def test_what_is_no_whole_document_is_an_error_that_quotes_it(answer: str) -> None:
    with pytest.raises(ValueError, match=re.escape(REFUSED[answer])):
        json_in(answer)


U32 = (
    '{"protocol":"all","pref":49152,"kind":"u32","chain":0},'
    '{"protocol":"all","pref":49152,"kind":"u32","chain":0,"options":{fh 800: ht divisor 1 }},'
    '{"protocol":"all","pref":49152,"kind":"u32","chain":0,"options":'
    "{fh 800::800 order 2048 key ht 800 bkt 0 flowid 10:1 not_in_hw \n  match 00000000/00000000 at 0\n"
    '"actions":[{"order":1,"kind":"mirred","mirred_action":"mirror","to_dev":"lo"}]}}'
)
"""As iproute2 before 5.17 prints one (github.com/iproute2/iproute2, issue 31)."""


def with_filters(port: str, place: str, text: str, state: SwitchState) -> dict[str, str]:
    """What the host answers where its filters at a place begin with these."""
    query = filter_query(state)
    places = ("parent 10:", "parent 20:", "parent 30:", "ingress", "egress")
    lines = answers()[query].splitlines()
    at = [each.name for each in state.ports].index(port) * len(places) + places.index(place)
    rest = lines[at].removeprefix("[")
    lines[at] = f"[{text}{'' if rest == ']' else ','}{rest}"
    return {query: "\n".join(lines) + "\n"}


@pytest.mark.parametrize("place", ["ingress", "egress"])
def test_a_u32_filter_that_is_no_json_is_named_and_stays(state: SwitchState, place: str) -> None:
    running = read(state, with_filters("eth1", place, U32, state))
    assert running.state == state, "all else is read as before"
    with pytest.raises(DeviceError, match="eth1 has u32 for all, preference 49152, which") as caught:
        TARGET.diff(running, state, CAPABILITIES)
    assert " del " not in caught.value.hint
    assert "tc filter show dev eth1 ingress" in caught.value.hint


def test_a_u32_filter_among_our_queues_is_a_difference(state: SwitchState) -> None:
    running = read(state, with_filters("eth1", "parent 10:", U32, state))
    assert "filter all (u32) to 10:1" in running.state.ports[0].unexpected


@pytest.mark.parametrize("text", ["filter gibberish", '{"protocol":"ip","pref":"x"'])
def test_filters_that_cannot_be_read_are_named_by_port_and_place(state: SwitchState, text: str) -> None:
    with pytest.raises(DeviceError, match="which filters stand at eth2, ingress") as caught:
        read(state, with_filters("eth2", "ingress", text, state))
    assert caught.value.hint == "`tc filter show dev eth2 ingress` shows them without JSON"
