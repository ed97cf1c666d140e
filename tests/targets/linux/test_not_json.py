"""Answers that ought to be JSON and are not, or not only."""

import re
from typing import Any

import pytest

from mltswitch.errors import DeviceError
from mltswitch.targets import SwitchState
from mltswitch.targets.common import json_in
from mltswitch.targets.linux import TARGET as LINUX
from mltswitch.targets.linux.answers import filter_query
from tests.targets.linux.test_golden import answers

CAPABILITIES = LINUX.hardware(None)
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
    return answers() | {query: "\n".join(lines) + "\n"}


@pytest.mark.parametrize("place", ["ingress", "egress"])
def test_a_u32_filter_that_is_no_json_is_named_and_stays(state: SwitchState, place: str) -> None:
    clsact = '{"kind":"clsact","handle":"ffff:","dev":"eth1","parent":"ffff:fff1","options":{}}'
    found = with_filters("eth1", place, U32, state)
    query = "tc -j -d qdisc show"
    if '"clsact"' not in found[query]:
        found[query] = found[query].replace("[", f"[{clsact},", 1)
    running = LINUX.read(found, state, CAPABILITIES)
    assert running.state == state, "all else is read as before"
    with pytest.raises(DeviceError, match="eth1 has u32 for all, preference 49152, which") as caught:
        LINUX.diff(running, state, CAPABILITIES)
    assert " del " not in caught.value.hint
    assert "tc filter show dev eth1 ingress" in caught.value.hint


def test_a_u32_filter_among_our_queues_is_a_difference(state: SwitchState) -> None:
    running = LINUX.read(with_filters("eth1", "parent 10:", U32, state), state, CAPABILITIES)
    assert "filter all (u32) to 10:1" in running.state.ports[0].unexpected


@pytest.mark.parametrize("text", ["filter gibberish", '{"protocol":"ip","pref":"x"'])
def test_filters_that_cannot_be_read_are_named_by_port_and_place(state: SwitchState, text: str) -> None:
    with pytest.raises(DeviceError, match="which filters stand at eth2, ingress") as caught:
        LINUX.read(with_filters("eth2", "ingress", text, state), state, CAPABILITIES)
    assert caught.value.hint == "`tc filter show dev eth2 ingress` shows them without JSON"
