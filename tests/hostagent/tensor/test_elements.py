"""Tensors of every kind become bytes in place, or one clear line."""

import array
import ctypes
import mmap
import sys
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.tensor import TensorView, refuse_big_endian, view_of
from mltswitch.hostagent.tensor.layout import MAXIMUM_ELEMENTS
from mltswitch.wire import ElementType

NUMPY: dict[ElementType, np.dtype[Any]] = {
    ElementType.FLOAT32: np.dtype(np.float32),
    ElementType.FLOAT16: np.dtype(np.float16),
    ElementType.FLOAT64: np.dtype(np.float64),
    ElementType.INT8: np.dtype(np.int8),
}


def check_shared(view: TensorView, tensor: Any, element_type: ElementType, count: int) -> None:
    """What is written into the view stands in the tensor."""
    assert view.element_type is element_type
    assert view.element_count == count
    assert view.data.dtype == np.uint8
    assert view.data.shape == (count * element_type.size_bytes,)
    assert view.data.flags.c_contiguous
    view.data[:] = np.arange(len(view.data), dtype=np.uint8) % 60
    assert bytes(memoryview(tensor).cast("B")) == view.data.tobytes()


@given(
    element_type=st.sampled_from(sorted(NUMPY)),
    shape=arrays.array_shapes(min_dims=0, max_dims=4, max_side=5),
)
def test_numpy_arrays_share_their_memory(element_type: ElementType, shape: tuple[int, ...]) -> None:
    tensor = np.zeros(shape, NUMPY[element_type])
    check_shared(view_of(tensor, writable=True), tensor, element_type, tensor.size)


@pytest.mark.parametrize(
    ("letter", "element_type"),
    [("f", ElementType.FLOAT32), ("d", ElementType.FLOAT64), ("b", ElementType.INT8)],
)
def test_arrays_of_the_standard_library(letter: str, element_type: ElementType) -> None:
    tensor = array.array(letter, [0] * 5)
    check_shared(view_of(tensor, writable=True), tensor, element_type, 5)


class Rows(np.ndarray[Any, np.dtype[Any]]):
    """Has always two dimensions, as a matrix has, and views of its own."""

    def reshape(self, *_: Any, **__: Any) -> Any:
        return super().reshape((1, -1))

    def view(self, *_: Any, **__: Any) -> Any:
        raise TypeError("not so")


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("kind", [np.matrix, Rows, np.recarray])
@pytest.mark.parametrize("writable", [True, False])
def test_what_a_subclass_does_otherwise(kind: type[np.ndarray[Any, Any]], writable: bool) -> None:
    memory = np.zeros((3, 5), np.float32)
    check_shared(view_of(memory.view(kind), writable=writable), memory, ElementType.FLOAT32, 15)


def test_ctypes_arrays() -> None:
    tensor = (ctypes.c_float * 6)()
    view = view_of(tensor, writable=True)
    assert (view.element_type, view.element_count) == (ElementType.FLOAT32, 6)
    view.data.view(np.float32)[4] = 2.5
    assert tensor[4] == 2.5


@pytest.mark.parametrize("element_type", list(ElementType))
def test_bytes_get_their_meaning_from_the_caller(element_type: ElementType) -> None:
    size_bytes = 3 * element_type.size_bytes
    for tensor in (bytearray(size_bytes), np.zeros(size_bytes, np.uint8), mmap.mmap(-1, size_bytes)):
        check_shared(view_of(tensor, writable=True, element_type=element_type), tensor, element_type, 3)
        with pytest.raises(UserInputError, match=r"do not say what they stand for.*Name them"):
            view_of(tensor, writable=True)


@pytest.mark.parametrize("element_type", list(ElementType))
def test_names_of_element_types(element_type: ElementType) -> None:
    memory = bytearray(16)
    assert view_of(memory, writable=True, element_type=element_type.name.lower()).element_type is element_type


@pytest.mark.parametrize("value", ["float", "FLOAT32", "", 1, True, np.float32, np.dtype("f4"), ["float32"]])
def test_what_is_no_element_type(value: Any) -> None:
    expected = "float32, float16, bfloat16, float64, int8"
    for memory in (bytearray(16), np.zeros(4, np.float32)):
        with pytest.raises(UserInputError, match=f"^element_type: .* is no element type .*{expected}"):
            view_of(memory, writable=True, element_type=value)


def test_bits_of_bfloat16() -> None:
    for tensor in (np.zeros(4, np.uint16), array.array("H", [0] * 4)):
        check_shared(
            view_of(tensor, writable=True, element_type=ElementType.BFLOAT16), tensor, ElementType.BFLOAT16, 4
        )
        with pytest.raises(UserInputError, match="cannot be taken as float32"):
            view_of(tensor, writable=True, element_type=ElementType.FLOAT32)


def test_bfloat16_of_ml_dtypes() -> None:
    types = pytest.importorskip("ml_dtypes")
    tensor = np.zeros((2, 3), types.bfloat16)
    view = view_of(tensor, writable=True)
    assert (view.element_type, view.element_count) == (ElementType.BFLOAT16, 6)
    view.data.view(np.uint16)[5] = 0x3F80
    assert float(tensor[1, 2]) == 1.0


def test_memory_at_any_address() -> None:
    memory = bytearray(4 * 6 + 1)
    view = view_of(memoryview(memory)[1:].cast("f"), writable=True)
    assert (view.element_type, view.element_count) == (ElementType.FLOAT32, 6)
    view.data[0] = 7
    assert memory[1] == 7


def test_read_only_memory_can_be_sent_and_not_received_into() -> None:
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    tensors: tuple[Any, ...] = (frozen, memoryview(bytes(12)).cast("f"))
    for tensor in tensors:
        assert view_of(tensor, writable=False).data.tobytes() == bytes(12)
        with pytest.raises(UserInputError, match=r"^tensor: is read-only"):
            view_of(tensor, writable=True)
    assert view_of(b"\1\2", writable=False, element_type=ElementType.INT8).element_count == 2
    with pytest.raises(UserInputError, match="bytearray"):
        view_of(b"\1\2", writable=True, element_type=ElementType.INT8)


class Elsewhere:
    """What lies on a GPU says so by this attribute."""

    __cuda_array_interface__ = MappingProxyType[str, Any]({})


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (np.zeros((4, 4), np.float32)[:, 1], "one piece.*ascontiguousarray"),
        (np.asfortranarray(np.zeros((4, 4), np.float32)), "one piece"),
        (np.broadcast_to(np.float32(1), (3,)), "one piece"),
        (memoryview(array.array("f", [1, 2, 3, 4]))[::2], "one piece"),
        (np.zeros(3, ">f4"), "byte order"),
        ((ctypes.c_float.__ctype_be__ * 3)(), "byte order"),
        (np.zeros(0, np.float32), "has no elements"),
        (np.zeros((3, 0), np.float64), "has no elements"),
        (array.array("d"), "has no elements"),
        (np.zeros(3, np.int32), "int32 elements .expected elements of float32"),
        (np.zeros(3, np.complex64), "complex64"),
        (np.zeros(3, np.bool_), "bool"),
        (np.zeros(3, [("a", "f4")]), "elements"),
        (np.array([None, 1]), "object"),
        (np.ma.masked_array(np.zeros(3, np.float32), [True, False, True]), "masked"),
        (array.array("l", [1]), "'l' elements"),
        ([1.0, 2.0], "type list"),
        (None, "type NoneType"),
        ("text", "type str"),
        (Elsewhere(), "memory of a GPU"),
    ],
)
def test_what_cannot_be_shared_is_one_line(tensor: object, message: str) -> None:
    with pytest.raises(UserInputError, match=f"^tensor: .*{message}") as caught:
        view_of(tensor, writable=False)
    assert "\n" not in str(caught.value)


def test_released_memory() -> None:
    view = memoryview(bytearray(8))
    view.release()
    with pytest.raises(UserInputError, match="cannot be shared"):
        view_of(view, writable=False, element_type=ElementType.INT8)


@given(
    size_bytes=st.integers(0, 40),
    element_type=st.sampled_from(ElementType) | st.none(),
    dtype=st.sampled_from([np.dtype(np.uint8), *NUMPY.values()]),
)
def test_a_view_or_one_line(size_bytes: int, element_type: ElementType | None, dtype: np.dtype[Any]) -> None:
    tensor = np.zeros(size_bytes // dtype.itemsize, dtype)
    try:
        view = view_of(tensor, writable=True, element_type=element_type)
    except UserInputError as error:
        own = [entry for entry, each in NUMPY.items() if each == dtype]
        chosen = own[0] if own else element_type
        assert (
            not tensor.size
            or chosen is None
            or element_type not in (None, chosen)
            or tensor.nbytes % chosen.size_bytes
        ), error
    else:
        assert view.data.nbytes == tensor.nbytes == view.element_count * view.element_type.size_bytes
        assert np.shares_memory(view.data, tensor)


def test_more_elements_than_a_header_can_name() -> None:
    try:
        memory = mmap.mmap(-1, MAXIMUM_ELEMENTS + 1)  # pages that nobody touches cost nothing
    except (OSError, OverflowError):
        pytest.skip("no address space for it")
    with pytest.raises(UserInputError, match="in parts"):
        view_of(memory, writable=False, element_type=ElementType.INT8)


def test_big_endian_machines() -> None:
    with pytest.raises(MachineError, match="little-endian"):
        refuse_big_endian("big")
    refuse_big_endian("little")
    if sys.byteorder == "little":
        refuse_big_endian()


@pytest.mark.torch
class TestTorch:
    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        self.torch: Any = pytest.importorskip("torch")

    @pytest.mark.parametrize("element_type", list(ElementType))
    def test_shares_its_memory(self, element_type: ElementType) -> None:
        torch = self.torch
        tensor = torch.zeros((3, 5), dtype=getattr(torch, element_type.name.lower()))
        view = view_of(tensor, writable=True)
        assert (view.element_type, view.element_count) == (element_type, 15)
        view.data[:] = np.arange(len(view.data)) % 60
        assert tensor.reshape(-1).view(torch.uint8).numpy().tobytes() == view.data.tobytes()
        assert view.data.ctypes.data == tensor.data_ptr()

    def test_parameters_and_scalars(self) -> None:
        torch = self.torch
        parameter = torch.nn.Parameter(torch.ones(4))
        view = view_of(parameter, writable=True)
        view.data.view(np.float32)[2] = 5
        assert parameter.tolist() == [1, 1, 5, 1]
        assert parameter.requires_grad
        assert view_of(torch.tensor(2.0), writable=False).element_count == 1

    def test_a_slice_begins_where_it_lies(self) -> None:
        torch = self.torch
        tensor = torch.arange(10.0)
        assert view_of(tensor[4:7], writable=False).data.view(np.float32).tolist() == [4, 5, 6]

    def test_what_cannot_be_shared_is_one_line(self) -> None:
        torch = self.torch
        for tensor, message in (
            (torch.zeros(4, 4).T, "one piece.*contiguous()"),
            (torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), "one piece"),
            (torch.zeros(3).expand(2, 3), "one piece"),
            (torch.zeros(3, dtype=torch.complex64).conj().imag, "one piece"),
            (torch.zeros(3, device="meta"), "memory of meta"),
            (torch.zeros(3).to_sparse(), "sparse"),
            (torch.zeros(0), "no elements"),
            (torch.zeros(3, dtype=torch.int32), "int32 elements"),
            (torch.zeros(3, dtype=torch.uint8), "do not say"),
        ):
            with pytest.raises(UserInputError, match=f"^tensor: .*{message}"):
                view_of(tensor, writable=False)
