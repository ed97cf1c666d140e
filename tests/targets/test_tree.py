"""What follows from the leaves of a configuration that is a tree."""

import pytest

from mltswitch.targets.base import FileError, LineError
from mltswitch.targets.engine.tree import (
    Leaves,
    check_leaves,
    expand_names,
    flatten,
    nest,
    numbered,
    printed_leaves,
    put_back,
    removed_objects,
    yaml_lines,
)

TREE = {"port": {"p1": {"speed": "9", "map": {"5": {}}}, "p2": {"speed": "9"}}}
PRINTED = {"port": {"p1-p2": {"speed": 9}, "p1": {"map": {"5": None}}}}
LEAVES = {("port", "p1", "speed"): "9", ("port", "p1", "map", "5"): "", ("port", "p2", "speed"): "9"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("swp1-3,swp5,7", ("swp1", "swp2", "swp3", "swp5", "swp7")),
        ("swp1s0-2", ("swp1s0", "swp1s1", "swp1s2")),
        ("br_default", ("br_default",)),
        ("0-2,7", ("0", "1", "2", "7")),
    ],
)
def test_names(text: str, names: tuple[str, ...]) -> None:
    assert expand_names(text) == names


def test_what_is_no_range_is_refused() -> None:
    with pytest.raises(ValueError, match="no range"):
        expand_names("swp3-1")
    with pytest.raises(ValueError, match="more than 100,000 entries"):
        printed_leaves({"port": {"0-999": {"port": {"0-999": {}}}}}, {"port"})


def test_a_tree_its_leaves_and_what_a_device_prints_of_it() -> None:
    assert flatten(TREE) == LEAVES
    assert nest(printed_leaves(PRINTED, {"port"})) == nest(LEAVES.items()) == TREE
    assert yaml_lines(TREE, "  ")[:5] == [
        *("  port:", "    p1:", "      speed: 9", "      map:"),
        "        '5': {}",
    ]


def test_leaves_of_a_file_are_said_once_and_are_those_that_are_needed() -> None:
    found, numbers = numbered((number, [leaf]) for number, leaf in enumerate(LEAVES.items(), start=7))
    assert found == LEAVES
    check_leaves(found, LEAVES, numbers)
    with pytest.raises(FileError) as raised:
        check_leaves(found, {**LEAVES, ("port", "p2", "speed"): "8", ("a",): "b"}, numbers)
    assert [(error.number, str(error)) for error in raised.value.errors] == [
        (9, "does not fit the other lines: port p2 speed 9"),
        (0, "lacks a b"),
    ]
    with pytest.raises(LineError, match="port p1 speed is set twice"):
        numbered((number, [(("port", "p1", "speed"), "9")]) for number in (3, 4))


def test_whole_objects_go_where_nothing_of_them_is_kept() -> None:
    after: Leaves = {("port", "p1", "speed"): "9"}
    assert removed_objects(LEAVES, after, {"port": 2}) == [("port", "p1", "map"), ("port", "p2")]
    assert removed_objects(LEAVES, {}, {}) == [("port",)]


def test_what_a_push_changed_is_put_back_and_nothing_else() -> None:
    before: Leaves = {("a",): "1", ("b",): "2", ("c",): "3"}
    pushed: Leaves = {("a",): "9", ("c",): "3", ("d",): "4"}
    now: Leaves = {("a",): "9", ("c",): "7", ("d",): "4", ("e",): "5"}
    assert put_back(now, before, pushed) == {("a",): "1", ("b",): "2", ("c",): "7", ("e",): "5"}
