"""Trees: every node once, no circles, no more children than allowed, each rack entered once, and low."""

from collections import Counter
from math import ceil, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.overlay.trees import RACK, children_of, depths, tree


@st.composite
def places(draw: st.DrawFn) -> tuple[int, list[int], dict[int, int]]:
    count = draw(st.integers(1, 60))
    order = draw(st.permutations(range(count)))
    racks = draw(st.lists(st.integers(0, 8), min_size=count, max_size=count))
    return -1, order, dict(enumerate(racks))


@given(places(), st.one_of(st.integers(1, 6), st.just(RACK)), st.booleans())
def test_laws_of_trees(
    where: tuple[int, list[int], dict[int, int]], in_degree: int | str, has_racks: bool
) -> None:
    root, order, racks = where
    if not has_racks and in_degree == RACK:
        with pytest.raises(UserInputError, match="racks, where in_degree is rack"):
            tree(root, order, {}, in_degree)
        return
    parents = tree(root, order, racks if has_racks else {}, in_degree)
    assert sorted(parents) == sorted(order), "every node once"
    assert root not in parents
    assert set(depths(parents)) == set(parents), "each way ends at the root"
    children = children_of(parents)
    if isinstance(in_degree, int):
        assert max(map(len, children.values())) <= in_degree
    if has_racks:
        entered = Counter(racks[node] for node, parent in parents.items() if racks.get(parent) != racks[node])
        assert entered == Counter({racks[node] for node in order})
    if in_degree == RACK:
        assert max(depths(parents).values()) <= 2
    elif isinstance(in_degree, int) and in_degree > 1 and not has_racks:
        lowest = ceil(log((len(order) + 1) * (in_degree - 1) + 1, in_degree) - 1e-9) - 1
        assert max(depths(parents).values()) == lowest, "as low as it can be"


def test_the_roots_own_rack_sends_to_it() -> None:
    racks = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b"}
    assert tree(0, [0, 1, 2, 3, 4], racks, RACK) == {1: 0, 2: 0, 3: 0, 4: 3}
    assert tree(0, [0, 1, 2, 3, 4], racks, 2) == {1: 0, 2: 0, 3: 1, 4: 3}


@pytest.mark.parametrize("in_degree", [0, -1, "racks"])
def test_in_degrees_that_are_none(in_degree: int | str) -> None:
    with pytest.raises(UserInputError, match="in_degree"):
        tree(-1, [1, 2], {1: 0, 2: 0}, in_degree)
