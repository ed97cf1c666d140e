"""bfloat16: the nearest one, all of them back again, and no value that becomes another kind of value."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.training.shortening import CHUNK, lengthen, round_to_short, shortened

ALL = np.arange(1 << 16, dtype=np.uint16)


def long_of(short: np.ndarray) -> np.ndarray:
    values = np.empty(len(short), np.float32)
    lengthen(short, values)
    return values


def test_every_short_value_comes_back() -> None:
    values = long_of(ALL)
    is_number = ~np.isnan(values)
    assert np.array_equal(shortened(values)[is_number], ALL[is_number])
    assert np.isnan(long_of(shortened(values[~is_number]))).all()


@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_it_is_the_nearest_one_and_the_even_one_of_two(numbers: list[float]) -> None:
    values = np.array(numbers, np.float32)
    found = long_of(shortened(values))
    assert np.array_equal(np.isnan(found), np.isnan(values))
    for value, short in zip(values.tolist(), found.tolist(), strict=True):
        if not np.isfinite(value):
            assert short == value or np.isnan(value)
            continue
        at = int(np.float32(value).view(np.uint32)) >> 16
        around = long_of(np.array([at, at + 1], np.uint16)).astype(np.float64)
        around[np.isinf(around)] = np.copysign(2.0**128, value)
        distances = abs(around - value)
        expected = at + int(distances[1] < distances[0] or (distances[0] == distances[1] and at % 2))
        assert np.float32(short).view(np.uint32) >> 16 == expected


@pytest.mark.parametrize("count", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_any_length_as_torch_has_it(count: int) -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    values[count // 2] = np.nan
    theirs = torch.from_numpy(values).bfloat16().float().numpy()
    round_to_short(values)
    assert np.array_equal(values, theirs, equal_nan=True)
