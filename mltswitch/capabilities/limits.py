"""The three ways in which switches limit a queue's length: bytes, a share of the free pool, or not at all."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

LARGEST_EXPONENT: Final = 16
"""Largest absolute exponent of alpha = 2**exponent: no switch offers more, up or down."""


@dataclass(frozen=True, slots=True)
class BytesLimit:
    """Tail drop above a fixed number of waiting bytes."""

    size_bytes: Annotated[int, Field(gt=0)]
    """The limit in bytes; its range is checked where a document is read."""
    kind: Literal["bytes"] = "bytes"

    def __str__(self) -> str:
        return f"{self.size_bytes} B"


@dataclass(frozen=True, slots=True)
class AlphaLimit:
    """Dynamic threshold: a queue may hold alpha = 2**exponent times the free bytes of its pool.

    Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998.
    """

    exponent: Annotated[int, Field(ge=-LARGEST_EXPONENT, le=LARGEST_EXPONENT)]
    """The exponent of alpha; its range is checked where a document is read."""
    kind: Literal["alpha"] = "alpha"

    def resting_bytes(self, pool_bytes: int, congested_queues: int = 1) -> int:
        """Length in bytes at which so many queues with this alpha come to rest: q = alpha (pool - n q)."""
        alpha = 2.0**self.exponent
        return int(pool_bytes * alpha / (1 + congested_queues * alpha))

    def __str__(self) -> str:
        return f"alpha 2^{self.exponent}"


@dataclass(frozen=True, slots=True)
class Unlimited:
    """The device bounds the queue only by the port's buffer."""

    kind: Literal["none"] = "none"

    def __str__(self) -> str:
        return "none"


Limit = BytesLimit | AlphaLimit | Unlimited
