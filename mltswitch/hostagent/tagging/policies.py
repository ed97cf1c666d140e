"""Policies that choose a tensor's important packets: built-in ones by name, or objects of the user's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.hostagent.elements import TensorMemory
from mltswitch.wire import ElementType


@runtime_checkable
class ImportancePolicy(Protocol):
    """Chooses a tensor's important packets before the first one leaves, in the thread that posts."""

    def important(self, memory: TensorMemory, elements_per_packet: int) -> NDArray[np.bool_]:
        """A flag for each packet, shape (packets,); the last packet may be shorter."""


def important_packets(
    policy: ImportancePolicy, memory: TensorMemory, elements_per_packet: int
) -> NDArray[np.bool_]:
    """The flags that a policy returns; raises UserInputError if they are not one for each packet."""
    flags = policy.important(memory, elements_per_packet)
    return _flags(flags, packets_of(memory, elements_per_packet), "importance policy")


def _flags(answer: Any, packets: int, where: str) -> NDArray[np.bool_]:
    flags = np.asarray(answer)
    if flags.shape != (packets,) or flags.dtype != np.bool_:
        raise UserInputError(
            f"answered {flags.dtype} of shape {flags.shape}",
            where=where,
            expected=f"bool of shape ({packets},)",
        )
    return flags


def packets_of(memory: TensorMemory, elements_per_packet: int) -> int:
    """How many packets hold the tensor."""
    return -(-memory.element_count // elements_per_packet)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A policy that the data plane implements in C."""

    name: Literal["magnitude", "all", "none", "edges"]

    def important(self, memory: TensorMemory, elements_per_packet: int) -> NDArray[np.bool_]:
        """The flags for transports without the data plane; `magnitude` marks all packets there."""
        flags = np.full(packets_of(memory, elements_per_packet), self.name in {"magnitude", "all"})
        flags[[0, -1]] |= self.name == "edges"
        return flags


@dataclass(frozen=True, slots=True)
class ByPosition:
    """Policy by which one end of a tensor is important: a bucket's back layers cost more (MLT, figure 4a)."""

    share: float = 0.5
    """Share of the tensor's elements that are important, 0 to 1."""
    end: Literal["front", "back"] = "back"

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.end not in {"front", "back"}:
            raise UserInputError(
                f"{self.share} of the {self.end}", where="importance", expected="0 to 1 of the front or back"
            )

    def important(self, memory: TensorMemory, elements_per_packet: int) -> NDArray[np.bool_]:
        """Marks every packet that holds an element of the important end."""
        elements = round(self.share * memory.element_count)
        first = np.arange(packets_of(memory, elements_per_packet)) * elements_per_packet
        if self.end == "front":
            return first < elements
        ends = np.minimum(first + elements_per_packet, memory.element_count)
        return ends > memory.element_count - elements


@dataclass(frozen=True, slots=True)
class ByFunction:
    """Policy: a function decides from packets as rows of elements, shape (packets, elements), read-only.

    The last packet, if it is shorter, is passed alone. bfloat16 elements are passed as float32.
    """

    function: Callable[[NDArray[Any]], NDArray[np.bool_]]

    def important(self, memory: TensorMemory, elements_per_packet: int) -> NDArray[np.bool_]:
        """The flags that the function returns; raises UserInputError if they are not one for each packet."""
        elements = memory.elements()
        if memory.element_type is ElementType.BFLOAT16:
            elements = (elements.astype(np.uint32) << np.uint32(16)).view(np.float32)
        whole = len(elements) // elements_per_packet * elements_per_packet
        rows = [elements[:whole].reshape(-1, elements_per_packet), elements[whole:].reshape(1, -1)]
        return np.concatenate([self._asked(part) for part in rows if part.size])

    def _asked(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        rows = rows.view()
        rows.flags.writeable = False
        return _flags(self.function(rows), len(rows), "importance function")


POLICIES: Final[Mapping[str, ImportancePolicy]] = {
    # Packets whose mean |element| reaches the median of a sample of packet means (MLT, section 4.2.2, where
    # the paper compares with the median gradient, which marks nearly all packets).
    "magnitude": Compiled("magnitude"),
    "all": Compiled("all"),  # for parameters, which are never dropped first (MLT, section 6.1)
    "none": Compiled("none"),
    "position": ByPosition(),
    "edges": Compiled("edges"),  # the first packet and the last one (LTP, section III-E)
}


def policy_named(policy: ImportancePolicy | str) -> ImportancePolicy:
    """The policy of this name, or a given policy object unchanged; raises UserInputError."""
    if isinstance(policy, str):
        if policy in POLICIES:
            return POLICIES[policy]
    elif isinstance(policy, ImportancePolicy):
        return policy
    elif callable(policy):
        return ByFunction(policy)
    raise UserInputError(
        f"{policy!r:.60} is no policy", where="importance", expected=f"{', '.join(POLICIES)}, or an object"
    )
