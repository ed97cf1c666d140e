"""Which packets of a tensor are important: by name, or an object of the user's."""

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
    """Looks at a tensor before its first packet leaves; in the thread that posts."""

    def important(self, memory: TensorMemory, elements_per_packet: int) -> NDArray[np.bool_]:
        """A flag a packet, shape (packets,); the last packet may be shorter."""


def important_packets(
    policy: ImportancePolicy, memory: TensorMemory, elements_per_packet: int
) -> NDArray[np.bool_]:
    """What a policy says; raises UserInputError where that is not a flag a packet."""
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
    """How many packets hold a tensor."""
    return -(-memory.element_count // elements_per_packet)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A policy that the data plane has in C."""

    name: Literal["magnitude", "all", "none", "edges"]

    def important(self, memory: TensorMemory, elements_per_packet: int) -> NDArray[np.bool_]:
        """For transports without it: by magnitude nobody decides there, so all are."""
        flags = np.full(packets_of(memory, elements_per_packet), self.name in {"magnitude", "all"})
        flags[[0, -1]] |= self.name == "edges"
        return flags


@dataclass(frozen=True, slots=True)
class ByPosition:
    """Elements at one end of a tensor: the back layers of a bucket cost more to lose (MLT, figure 4a)."""

    share: float = 0.5
    """Of the elements, 0 to 1."""
    end: Literal["front", "back"] = "back"

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.end not in {"front", "back"}:
            raise UserInputError(
                f"{self.share} of the {self.end}", where="importance", expected="0 to 1 of the front or back"
            )

    def important(self, memory: TensorMemory, elements_per_packet: int) -> NDArray[np.bool_]:
        """Every packet that holds one of them."""
        elements = round(self.share * memory.element_count)
        first = np.arange(packets_of(memory, elements_per_packet)) * elements_per_packet
        if self.end == "front":
            return first < elements
        ends = np.minimum(first + elements_per_packet, memory.element_count)
        return ends > memory.element_count - elements


@dataclass(frozen=True, slots=True)
class ByFunction:
    """What a function says of packets as rows of their elements, shape (packets, elements), read-only.

    The last packet, where it is shorter, comes alone. bfloat16 comes as float32.
    """

    function: Callable[[NDArray[Any]], NDArray[np.bool_]]

    def important(self, memory: TensorMemory, elements_per_packet: int) -> NDArray[np.bool_]:
        """Raises UserInputError where the function does not answer a flag a packet."""
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
    """The policy of this name, or the given object as one; raises UserInputError."""
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
