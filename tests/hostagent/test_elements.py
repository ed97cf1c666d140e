"""Whatever holds elements can be sent as it lies, or is refused with the reason. No sockets."""

import array
import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent.elements import memory_of
from mltswitch.wire import ElementType

NUMPY_TYPES = ["float32", "float16", "float64", "int8", "int16", "int32", "int64"]
AS_BYTES = ["uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128", "S5", "M8[ns]"]


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_a_numpy_type_is_known_by_its_name(name: str) -> None:
    tensor = np.ones((3, 5), name)
    memory = memory_of(tensor)
    assert memory.element_type is ElementType[name.upper()]
    assert memory.element_count == 15
    assert memory.elements().dtype == tensor.dtype
    assert np.shares_memory(memory.data, tensor)


@pytest.mark.parametrize("name", AS_BYTES)
def test_what_has_no_type_of_the_wire_travels_as_bytes(name: str) -> None:
    tensor = np.zeros(4, name)
    memory = memory_of(tensor)
    assert memory.element_type is ElementType.BYTES
    assert memory.element_count == tensor.nbytes


@given(st.integers(1, 9), st.sampled_from(NUMPY_TYPES))
def test_an_element_type_may_be_said(count: int, name: str) -> None:
    kind = ElementType[name.upper()]
    raw = bytearray(count * kind.size_bytes)
    assert memory_of(raw, element_type=name).element_count == count
    assert memory_of(raw, element_type=kind).element_type is kind
    if kind.size_bytes > 1:
        with pytest.raises(UserInputError, match="no whole number"):
            memory_of(raw[:-1], element_type=kind)


@pytest.mark.parametrize(
    ("tensor", "kind", "count"),
    [
        (bytearray(5), ElementType.BYTES, 5),
        (array.array("f", [1, 2]), ElementType.FLOAT32, 2),
        (array.array("l", [1, 2]), ElementType.INT64, 2),
        (memoryview(array.array("d", [1])), ElementType.FLOAT64, 1),
        ((ctypes.c_int * 3)(), ElementType.INT32, 3),
        (np.zeros(4, np.float16).data, ElementType.FLOAT16, 4),
        ((ctypes.c_long * 3)(), ElementType.INT64, 3),
        (np.float64(3.0), ElementType.FLOAT64, 1),
        (np.zeros((), np.int16), ElementType.INT16, 1),
    ],
)
def test_buffers(tensor: Any, kind: ElementType, count: int) -> None:
    memory = memory_of(tensor)
    assert (memory.element_type, memory.element_count) == (kind, count)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (np.zeros((4, 4), np.float32).T, "one piece"),
        (np.zeros(8, np.float32)[::2], "one piece"),
        (np.zeros(8, ">f4"), "byte order"),
        (memoryview(bytearray(8))[::2], "one piece"),
        (np.zeros(0, np.float32), "1 or more"),
        (b"", "1 or more"),
        (np.array([object()]), "no plain array"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "no plain array"),
        ([1.0, 2.0], "cannot be shared"),
        ("text", "cannot be shared"),
        (None, "cannot be shared"),
    ],
)
def test_what_cannot_be_shared(tensor: object, message: str) -> None:
    with pytest.raises(UserInputError, match=message):
        memory_of(tensor)


@pytest.mark.parametrize("tensor", [b"constant", np.frombuffer(b"12345678", np.float32)])
def test_nothing_is_received_into_constants(tensor: object) -> None:
    assert memory_of(tensor).element_count
    with pytest.raises(UserInputError, match="read-only"):
        memory_of(tensor, writable=True)


@pytest.mark.parametrize("name", ["float31", "", "FLOAT32", 5])
def test_types_that_do_not_exist(name: Any) -> None:
    with pytest.raises(UserInputError, match=r"no element type .*float32"):
        memory_of(bytearray(8), element_type=name)


def test_what_lies_on_a_gpu_is_said_to() -> None:
    class OnGpu:
        __cuda_array_interface__ = {"shape": (1,)}  # noqa: RUF012  (as the interface has it)

    with pytest.raises(UserInputError, match="memory of a GPU"):
        memory_of(OnGpu())


@pytest.mark.torch
class TestTorch:
    """Only with torch."""

    @pytest.fixture
    def torch(self) -> Any:
        return pytest.importorskip("torch")

    @pytest.mark.parametrize("name", [*NUMPY_TYPES, "bfloat16"])
    def test_its_types(self, torch: Any, name: str) -> None:
        tensor = torch.ones(2, 3, dtype=getattr(torch, name), requires_grad="float" in name)
        memory = memory_of(tensor, writable=True)
        assert memory.element_type is ElementType[name.upper()]
        assert memory.element_count == 6
        memory.data[:] = 0
        assert not tensor.any()

    @pytest.mark.parametrize("name", ["uint8", "bool", "complex64"])
    def test_others_travel_as_bytes(self, torch: Any, name: str) -> None:
        assert memory_of(torch.zeros(3, dtype=getattr(torch, name))).element_type is ElementType.BYTES

    def test_what_it_has_that_cannot_be_shared(self, torch: Any) -> None:
        for tensor, message in (
            (torch.zeros(4, 4).T, "one piece"),
            (torch.zeros(3, dtype=torch.complex64).conj(), "one piece"),
            (torch.zeros(3).to_sparse(), "one piece"),
            (torch.zeros(3, device="meta"), "memory of meta"),
            (torch.zeros(0), "1 or more"),
        ):
            with pytest.raises(UserInputError, match=message):
                memory_of(tensor)
        assert memory_of(torch.tensor(3.0)).element_count == 1
