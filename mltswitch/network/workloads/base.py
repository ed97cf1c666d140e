"""What a workload is given, and what it makes."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mltswitch.errors import UserInputError


@dataclass(frozen=True, slots=True)
class Flow:
    """What one host sends to another one; hosts by number."""

    source: int
    destination: int
    size_bytes: int
    traffic_class: int
    start_picoseconds: int = 0
    label: str = ""
    """What it carries: a layer, say."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a workload is, told before its flows are made."""

    flows: int
    size_bytes: int
    """Of all flows."""
    largest_bytes: int
    """Of the largest flow."""
    last_start_seconds: float
    """No flow starts later."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The hosts that flows are made for."""

    hosts: int
    class_of: Callable[[int, int], int]
    """(layer, number of layers) → traffic class."""
    random: np.random.Generator = field(repr=False)
    plan_layers: int | None = None
    """Layers of the model that the switches' plan is for."""

    def need(self, hosts: int, what: str) -> None:
        """Raise UserInputError where the fabric has fewer hosts."""
        if hosts > self.hosts:
            raise UserInputError(
                f"{what} need {hosts} hosts, the fabric has {self.hosts}",
                where="workload",
                hint="take fewer, or a larger fabric",
            )
