"""The interpreter refuses what it does not know, and faults in what it executes are seen."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bmv2_tests.differential import compare
from bmv2_tests.interpreted import interpreted_switch
from bmv2_tests.interpreter import Code, UnknownError
from bmv2_tests.packets import PORTS
from mltswitch.p4.program import Program, shipped_program

ROUNDS, PACKETS = 3, 400


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON document."""
    if isinstance(tree, dict):
        yield tree
    for each in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes(each)


def changed(program: Program, name: str, known: object, other: object, number: int | None = None) -> Program:
    """The program with another value in all places, or in one, that hold this value under this name."""
    source = json.loads(program.device_config)
    places = [node for node in nodes(source) if node.get(name, ...) == known]
    for node in places if number is None else [places[number]]:
        node[name] = other
    return replace(program, device_config=json.dumps(source).encode())


@pytest.mark.parametrize(
    ("name", "known", "other"),
    [
        ("op", "assign", "clone_ingress_pkt_to_egress"),
        ("op", "+", "sat_add"),
        ("op", "extract", "advance"),
        ("type", "local", "packet"),
        ("match_type", "lpm", "ternary"),
        ("algo", "crc32", "xxh64"),
        ("algo", "identity", "crc16"),
        ("update", False, True),
        ("with_counters", False, True),
    ],
)
def test_what_is_unknown_is_quoted(program: Program, name: str, known: object, other: object) -> None:
    with pytest.raises(UnknownError, match=json.dumps(other)):
        Code(changed(program, name, known, other).device_config)


def faults() -> Iterator[tuple[str, str, int]]:
    """Every inequality turned round, but for those of times: what is idle is asked by test_queues.py."""
    source = json.loads(shipped_program().device_config)
    for known, other in {">=": "<", "<": ">=", ">": "<=", "!=": "=="}.items():
        for number, node in enumerate(node for node in nodes(source) if node.get("op") == known):
            if "timestamp" not in json.dumps(node) and '"0x21"' not in json.dumps(node):
                yield known, other, number


@pytest.mark.parametrize(("known", "other", "number"), list(faults()))
def test_a_fault_in_the_compiled_program_is_seen(
    program: Program, known: str, other: str, number: int
) -> None:
    mutant = changed(program, "op", known, other, number)
    with interpreted_switch(len(PORTS)) as switch:
        try:
            differences = [compare(switch, mutant, seed, packets=PACKETS) for seed in range(1, ROUNDS + 1)]
        except AssertionError:
            return  # not even the packets that hold the queues come
    assert any(differences)
