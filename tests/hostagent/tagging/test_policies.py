"""Which packets a policy marks. No sockets."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent import ByFunction, ByPosition, ImportancePolicy
from mltswitch.hostagent.elements import TensorMemory, memory_of
from mltswitch.hostagent.tagging.policies import POLICIES, important_packets, packets_of, policy_named


def flags(policy: Any, data: Any, per_packet: int, **options: Any) -> list[bool]:
    memory: TensorMemory = memory_of(data, **options)
    found: list[bool] = important_packets(policy_named(policy), memory, per_packet).tolist()
    return found


@given(st.integers(1, 300), st.integers(1, 40), st.floats(0, 1), st.sampled_from(["front", "back"]))
def test_a_position_marks_every_packet_that_holds_such_an_element(
    count: int, per_packet: int, share: float, end: Any
) -> None:
    elements = np.arange(count)
    chosen = round(share * count)
    marked = elements[:chosen] if end == "front" else elements[count - chosen :]
    expected = [
        bool(np.isin(elements[first : first + per_packet], marked).any())
        for first in range(0, count, per_packet)
    ]
    assert flags(ByPosition(share, end), elements.astype(np.int32), per_packet) == expected


def test_names() -> None:
    data = np.zeros(10, np.float32)
    assert flags("all", data, 4) == [True] * 3
    assert flags("none", data, 4) == [False] * 3
    assert flags("position", data, 4) == [False, True, True]
    assert flags("edges", data, 3) == [True, False, False, True]
    assert flags("edges", data, 10) == [True]
    assert all(isinstance(policy, ImportancePolicy) for policy in POLICIES.values())
    with pytest.raises(UserInputError, match=r"'luck' is no policy .*magnitude, all, none, position, edges"):
        policy_named("luck")
    for wrong in ((1.5, "back"), (0.5, "middle")):
        with pytest.raises(UserInputError):
            ByPosition(*wrong)


def test_a_function_sees_rows_of_elements_and_may_not_write() -> None:
    seen: list[np.ndarray[Any, Any]] = []

    def largest(rows: np.ndarray[Any, Any]) -> Any:
        seen.append(rows)
        return np.abs(rows).max(axis=1) > 5

    data = np.array([1, 2, 3, 9, 1, 1, -8], np.int16)
    assert flags(largest, data, 3) == [False, True, True]
    assert [rows.tolist() for rows in seen] == [[[1, 2, 3], [9, 1, 1]], [[-8]]]
    assert not any(rows.flags.writeable for rows in seen)
    assert flags(ByFunction(largest), data[:1], 3) == [False]


def test_a_function_sees_bfloat16_as_numbers() -> None:
    halves = (np.array([1.5, -2.0, 0.25], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    assert flags(lambda rows: rows.mean(axis=1) == -0.25, halves, 2, element_type="bfloat16") == [True, False]


@pytest.mark.parametrize(
    "answer",
    [
        lambda rows: [True],
        lambda rows: np.ones(len(rows)),
        lambda rows: None,
        lambda rows: np.ones((len(rows), 1), bool),
    ],
)
def test_answers_that_are_no_flag_a_packet(answer: Any) -> None:
    with pytest.raises(UserInputError, match=r"answered .* \(expected bool of shape \(5,\)\)"):
        flags(answer, np.zeros(10, np.float32), 2)


def test_an_object_is_checked_as_well() -> None:
    class Mine:
        def __init__(self, packets: int) -> None:
            self.packets = packets

        def important(self, memory: TensorMemory, elements_per_packet: int) -> Any:
            return np.ones(self.packets, bool)

    assert flags(Mine(3), np.zeros(5, np.float32), 2) == [True] * 3
    with pytest.raises(UserInputError, match="importance policy: answered bool of shape"):
        flags(Mine(2), np.zeros(5, np.float32), 2)
    assert packets_of(memory_of(np.zeros(5, np.float32)), 2) == 3
