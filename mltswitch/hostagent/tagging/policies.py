"""Importance without a look at the magnitudes: all, none, by place, or as the user says."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.tensor.rows import PacketRows, packet_rows
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.hostagent.values import integer, real, shown
from mltswitch.hostagent.words import words_of
from mltswitch.wire import ElementType

POSITION_SHARE: Final = 0.5

_BFLOAT16_SHIFT: Final = np.uint32(16)


class End(StrEnum):
    """Of a tensor, or of a model."""

    FRONT = "front"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class RangeMarking:
    """Packets from `begin` to `end` - 1 are important."""

    begin: int
    end: int

    def important(self, first: int, last: int) -> NDArray[np.bool_]:
        """Of packets `first` to `last` - 1, shape (packets,)."""
        found = np.zeros(last - first, np.bool_)
        found[max(0, self.begin - first) : max(0, self.end - first)] = True
        return found


@dataclass(frozen=True, slots=True)
class AllImportant:
    """For parameters, which the paper never drops first (section 6.1, FSDP)."""

    def mark(self, tensor: TensorView, layout: PacketLayout) -> RangeMarking:  # noqa: ARG002, a policy looks
        """Looks at nothing."""
        return RangeMarking(0, layout.packet_count)


@dataclass(frozen=True, slots=True)
class NoneImportant:
    """Everything may be dropped above the threshold."""

    def mark(self, tensor: TensorView, layout: PacketLayout) -> RangeMarking:  # noqa: ARG002, a policy looks
        """Looks at nothing."""
        return RangeMarking(0, 0)


@dataclass(frozen=True, slots=True)
class ByPosition:
    """Important: elements at one end of the tensor, and every packet that holds one of them.

    For tensors that hold several layers in forward order (a bucket): gradients of the back layers cost more
    to lose (section 3.3, figure 4a: the last 20 % of the layers against the first).
    """

    share: float = POSITION_SHARE
    """Of the elements, 0 to 1, rounded to whole ones."""
    end: End = End.BACK

    def __post_init__(self) -> None:
        _check_share(self.share)
        object.__setattr__(self, "end", _end_given(self.end))

    def mark(self, tensor: TensorView, layout: PacketLayout) -> RangeMarking:  # noqa: ARG002, a policy looks
        """Looks at the layout alone."""
        elements = round(self.share * layout.element_count)
        if not elements:
            return RangeMarking(0, 0)
        if self.end is End.FRONT:
            return RangeMarking(0, -(-elements // layout.elements_per_packet))
        return RangeMarking(
            (layout.element_count - elements) // layout.elements_per_packet, layout.packet_count
        )


def by_layer(layer: int, layers: int, share: float = POSITION_SHARE, end: End = End.BACK) -> "WholeTensor":
    """Importance by position where each tensor belongs to one layer: all of it, or nothing.

    Args:
        layer: 0-based in forward order.
        layers: of the model.
        share: of the layers that are important, rounded to whole ones.
        end: of the model where they are.
    """
    _check_share(share)
    number, count = integer(layer), integer(layers)
    if number is None or count is None or not 0 <= number < count:
        raise UserInputError(
            f"there is no layer {shown(layer)} of {shown(layers)}", where="layer", expected="0 to one less"
        )
    important = round(share * layers)
    place = layer if _end_given(end) is End.FRONT else layers - 1 - layer
    return AllImportant() if place < important else NoneImportant()


WholeTensor = AllImportant | NoneImportant

ImportanceFunction = Callable[[NDArray[Any]], NDArray[np.bool_]]
"""Packets as rows of their elements, shape (packets, elements) → which are important, shape (packets,)."""


@dataclass(frozen=True, slots=True)
class ByFunction:
    """Important: what the user's function says.

    It is called with any number of packets at a time, in order, and must judge each by itself; the last
    packet, where it is shorter, comes alone. Rows are read-only and show the tensor itself; bfloat16 comes as
    float32.
    """

    function: ImportanceFunction

    def mark(self, tensor: TensorView, layout: PacketLayout) -> "FunctionMarking":
        """Looks at nothing yet."""
        return FunctionMarking(
            self.function, packet_rows(tensor, layout), layout.element_type is ElementType.BFLOAT16
        )


@dataclass(frozen=True, slots=True, eq=False)
class FunctionMarking:
    """Asks a function."""

    function: ImportanceFunction
    rows: PacketRows
    widens: bool
    """The rows are bits of bfloat16."""

    def important(self, first: int, last: int) -> NDArray[np.bool_]:
        """Of packets `first` to `last` - 1; raises UserInputError where the function does not do its part."""
        full, tail = self.rows.full, self.rows.tail
        parts = []
        if first < min(last, len(full)):
            parts.append(self._ask(full[first:last]))
        if tail is not None and last > len(full):
            parts.append(self._ask(tail))
        return np.concatenate(parts) if parts else np.zeros(0, np.bool_)

    def _ask(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        shown = _from_bfloat16(rows) if self.widens else rows.view()
        shown.flags.writeable = False
        where = f"importance function {getattr(self.function, '__name__', type(self.function).__name__)}"
        try:
            answer = np.asarray(self.function(shown))
        except MltswitchError:
            raise
        except Exception as error:
            raise UserInputError(words_of(error), where=where) from error
        if answer.shape != (len(rows),) or answer.dtype != np.bool_:
            raise UserInputError(
                f"answered {answer.dtype} of shape {answer.shape}",
                where=where,
                expected=f"bool of shape ({len(rows)},)",
            )
        return answer


def _from_bfloat16(rows: NDArray[Any]) -> NDArray[Any]:
    bits = rows.astype(np.uint32)
    return np.left_shift(bits, _BFLOAT16_SHIFT, out=bits).view(np.float32)


def _check_share(share: float) -> None:
    number = real(share)
    if number is None or not 0 <= number <= 1:
        raise UserInputError(f"{shown(share)} is no share", where="share", expected="0 to 1")


def _end_given(end: object) -> End:
    """By its name, too."""
    try:
        return End(end)  # type: ignore[arg-type]  # what is none says so itself
    except ValueError:
        raise UserInputError(f"{shown(end)} is no end", where="end", expected=", ".join(End)) from None
