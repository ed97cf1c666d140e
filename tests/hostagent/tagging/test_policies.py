"""Importance without a look at the magnitudes, and policies by name."""

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.hostagent.tagging import (
    DEFAULT_POLICY,
    POLICIES,
    AllImportant,
    ByFunction,
    ByMagnitude,
    ByPosition,
    End,
    NoneImportant,
    by_layer,
    policy_named,
)
from mltswitch.hostagent.tensor import PacketLayout, TensorView, packet_rows
from mltswitch.hostagent.transport.interfaces import ImportancePolicy
from mltswitch.wire import ElementType
from tests.hostagent.tagging.tensors import any_tensors, float64_of


@given(case=any_tensors(), data=st.data())
def test_all_and_none(case: tuple[TensorView, PacketLayout], data: st.DataObject) -> None:
    tensor, layout = case
    first = data.draw(st.integers(0, layout.packet_count))
    last = data.draw(st.integers(first, layout.packet_count))
    assert AllImportant().mark(tensor, layout).important(first, last).tolist() == [True] * (last - first)
    assert NoneImportant().mark(tensor, layout).important(first, last).tolist() == [False] * (last - first)


@given(case=any_tensors(), share=st.floats(0, 1), end=st.sampled_from(End), data=st.data())
def test_by_position_packets_that_hold_an_important_element(
    case: tuple[TensorView, PacketLayout], share: float, end: End, data: st.DataObject
) -> None:
    tensor, layout = case
    important = round(share * layout.element_count)
    elements = range(layout.element_count)
    chosen = elements[:important] if end is End.FRONT else elements[layout.element_count - important :]
    expected = {element // layout.elements_per_packet for element in chosen}
    marking = ByPosition(share, end).mark(tensor, layout)
    cut = data.draw(st.integers(0, layout.packet_count))
    found = np.concatenate([marking.important(0, cut), marking.important(cut, layout.packet_count)])
    assert set(np.flatnonzero(found).tolist()) == expected


def test_by_position_the_back_is_important() -> None:
    assert ByPosition() == ByPosition(0.5, End.BACK)


def test_by_layer() -> None:
    assert [by_layer(layer, 5, 0.4) for layer in range(5)] == [NoneImportant()] * 3 + [AllImportant()] * 2
    front = [by_layer(layer, 5, 0.4, End.FRONT) for layer in range(5)]
    assert front == [AllImportant()] * 2 + [NoneImportant()] * 3
    for layer in (-1, 5):
        with pytest.raises(UserInputError, match="layer: there is no layer"):
            by_layer(layer, 5)


@given(any_tensors())
def test_by_function_every_packet_is_shown_once(case: tuple[TensorView, PacketLayout]) -> None:
    tensor, layout = case
    seen: list[NDArray[Any]] = []

    def remember(packets: NDArray[Any]) -> NDArray[np.bool_]:
        assert not packets.flags.writeable
        with np.errstate(invalid="ignore"):
            seen.extend(row.astype(np.float64) for row in packets)
        found: NDArray[np.bool_] = np.isfinite(packets).all(axis=1)
        return found

    marking = ByFunction(remember).mark(tensor, layout)
    middle = layout.packet_count // 2
    found = np.concatenate([marking.important(0, middle), marking.important(middle, layout.packet_count)])
    with np.errstate(invalid="ignore"):
        assert np.array_equal(np.concatenate(seen), float64_of(tensor), equal_nan=True)
    assert found.tolist() == [bool(np.isfinite(packet).all()) for packet in seen]


def test_by_function_sees_the_tensor_itself() -> None:
    tensor = TensorView(np.zeros(40, np.uint8), ElementType.FLOAT32)
    layout = PacketLayout(ElementType.FLOAT32, 10, 5)
    shared = []

    def look(packets: NDArray[Any]) -> NDArray[np.bool_]:
        shared.append(np.shares_memory(packets, tensor.data))
        return np.ones(len(packets), np.bool_)

    assert ByFunction(look).mark(tensor, layout).important(0, 2).tolist() == [True, True]
    assert shared == [True]
    assert packet_rows(tensor, layout).full.flags.writeable


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda _packets: np.ones(1, np.bool_),
            r"answered bool of shape \(1,\) .expected bool of shape \(2,\)",
        ),
        (lambda packets: packets.mean(axis=1), "answered float32"),
        (lambda _packets: None, "answered object"),
        (lambda _packets: 1 // 0, "raised ZeroDivisionError"),
        (lambda packets: packets.fill(0), "raised ValueError: .*read-only"),
    ],
)
def test_functions_that_do_not_do_their_part(answer: Any, message: str) -> None:
    tensor = TensorView(np.zeros(40, np.uint8), ElementType.FLOAT32)
    marking = ByFunction(answer).mark(tensor, PacketLayout(ElementType.FLOAT32, 10, 5))
    with pytest.raises(UserInputError, match=f"^importance function <lambda>: .*{message}"):
        marking.important(0, 2)


def test_errors_of_ours_pass_through() -> None:
    def refuse(_packets: NDArray[Any]) -> NDArray[np.bool_]:
        raise UserInputError("not these", where="mine")

    tensor = TensorView(np.zeros(4, np.uint8), ElementType.INT8)
    with pytest.raises(UserInputError, match=r"^mine: not these$"):
        ByFunction(refuse).mark(tensor, PacketLayout(ElementType.INT8, 4, 4)).important(0, 1)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "x", "0.5", None, True])
def test_shares_that_are_none(share: Any) -> None:
    with pytest.raises(UserInputError, match=r"^share: "):
        ByPosition(share)
    with pytest.raises(UserInputError, match=r"^share: "):
        by_layer(0, 1, share)


def test_ends_by_name() -> None:
    layout = PacketLayout(ElementType.INT8, 40, 10)
    tensor = TensorView(np.zeros(40, np.uint8), ElementType.INT8)
    front: Any = "front"
    assert ByPosition(0.5, front).mark(tensor, layout).important(0, 4).tolist() == [True, True, False, False]
    assert by_layer(0, 2, end=front) == AllImportant()
    none: Any = "middle"
    for make in (lambda: ByPosition(0.5, none), lambda: by_layer(0, 2, end=none)):
        with pytest.raises(UserInputError, match=r"^end: 'middle' is no end .expected front, back"):
            make()


@pytest.mark.parametrize(("layer", "layers"), [("x", 3), (True, 3), (1.0, 3), (None, 3), (0, "3")])
def test_layers_that_are_none(layer: Any, layers: Any) -> None:
    with pytest.raises(UserInputError, match=r"^layer: there is no layer"):
        by_layer(layer, layers)


def test_policies_by_name() -> None:
    tensor = TensorView(np.arange(40, dtype=np.uint8), ElementType.INT8)
    layout = PacketLayout(ElementType.INT8, 40, 10)
    for name, kind in POLICIES.items():
        policy: ImportancePolicy = policy_named(name)
        assert isinstance(policy, kind)
        assert policy.mark(tensor, layout).important(0, 4).shape == (4,)
    assert isinstance(policy_named(DEFAULT_POLICY), ByMagnitude)
    with pytest.raises(
        UserInputError, match=r"no importance policy 'size' .expected magnitude, position, all, none"
    ):
        policy_named("size")


@pytest.mark.parametrize("name", [None, 1, ["all"], {"all": 1}])
def test_what_is_no_name_of_a_policy(name: Any) -> None:
    with pytest.raises(UserInputError, match=r"^importance: there is no importance policy .*expected magnit"):
        policy_named(name)


def test_tagging_needs_no_plan_and_no_framework() -> None:
    import subprocess

    code = "import sys, mltswitch.hostagent.tagging; print(*sorted(sys.modules))"
    modules = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "numpy" in modules
    assert not {"torch", "mltswitch.plan", "pydantic", "numba"} & set(modules)
