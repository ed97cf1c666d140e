"""What switches do in a scenario: follow a plan or thresholds by hand, mark at K, or drop when full."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from mltswitch.capabilities import AlphaLimit, BytesLimit
from mltswitch.documents import SparseDocument
from mltswitch.errors import UserInputError
from mltswitch.network.fabric import (
    BY_RANK,
    MARK_BY_PORT,
    PLAIN,
    TRIM,
    Rule,
    SwitchRules,
    bandwidth_delay_bytes,
)
from mltswitch.network.transports.parameters import ANSWER_BYTES
from mltswitch.network.units import SizeBytes
from mltswitch.plan import ClassKind, Plan, Port, PortProfile, Switch, Topology

MARKING_PACKETS = 65
"""K of DCTCP at 10 Gbit/s (Alizadeh et al., SIGCOMM 2010, section 3.4), and of MLT's section 6.2."""


class FromPlan(SparseDocument):
    """The thresholds, limits, memory and shares of the scenario's plan."""

    kind: Literal["plan"] = "plan"


class Marking(SparseDocument):
    """One queue that marks ECN-capable packets above K, and drops at the port's memory."""

    kind: Literal["marking"] = "marking"
    threshold_packets: Annotated[int, Field(ge=1, le=1_000_000, alias="k")] = MARKING_PACKETS


class DropTail(SparseDocument):
    """One queue that drops where the port's memory is full."""

    kind: Literal["drop-tail"] = "drop-tail"


class ClassThresholds(SparseDocument):
    """S and L of one gradient class."""

    threshold_bytes: SizeBytes = Field(alias="s")
    limit_bytes: SizeBytes = Field(alias="l")

    @model_validator(mode="after")
    def _marks_below_its_limit(self) -> Self:
        if self.threshold_bytes > self.limit_bytes:
            raise ValueError(f"s {self.threshold_bytes} B lies above l {self.limit_bytes} B")
        return self


class Thresholds(SparseDocument):
    """A control class, and gradient classes in strict priority with S and L by hand."""

    kind: Literal["thresholds"] = "thresholds"
    classes: tuple[ClassThresholds, ...] = Field(min_length=1, max_length=16)
    """Front layers first."""


class Priorities(SparseDocument):
    """Equal queues in strict priority; ECN-capable packets are marked where more than K wait at the port.

    PIAS, section 4.2: eight queues, and marking by port.
    """

    kind: Literal["priorities"] = "priorities"
    classes: int = Field(default=8, ge=1, le=16)
    threshold_packets: Annotated[int, Field(ge=1, le=1_000_000, alias="k")] = MARKING_PACKETS
    marking: Literal["port", "queue"] = "port"
    """What is compared with K."""


class PriorityDropping(SparseDocument):
    """pFabric: one queue that sends the packet of the highest priority, and drops that of the lowest."""

    kind: Literal["priority-dropping"] = "priority-dropping"
    size_bytes: SizeBytes | None = Field(default=None, alias="size")
    """By default what two round trips of the longest path carry, and no more than `buffer`."""


class Trimming(SparseDocument):
    """NDP: a short queue of data, and one for headers and answers that is served ten times as often."""

    kind: Literal["trimming"] = "trimming"
    packets: int = Field(default=8, ge=1, le=1_000_000)
    """Full packets of data that wait at the most; headers have the rest of the port's memory."""


_Kind = FromPlan | Marking | DropTail | Thresholds | Priorities | PriorityDropping | Trimming
SwitchDocument = Annotated[_Kind, Field(discriminator="kind")]
KINDS: Final[dict[str, Callable[[], _Kind]]] = {
    "plan": FromPlan,
    "marking": Marking,
    "drop-tail": DropTail,
    "priorities": Priorities,
    "priority-dropping": PriorityDropping,
    "trimming": Trimming,
}
"""Those that need no numbers."""


def rules_of(
    document: _Kind,
    *,
    topology: Topology,
    plan: Plan | None,
    buffer_bytes: int | None,
    packet_bytes: int,
    where: str,
) -> SwitchRules:
    """What the switches do.

    Args:
        document: As the scenario has it.
        topology: Of the fabric.
        plan: The scenario's plan, if it has one.
        buffer_bytes: Memory of a port.
        packet_bytes: A full packet.
        where: The field of the scenario that an error names.
    """
    if isinstance(document, FromPlan):
        if plan is None:
            raise UserInputError(
                "the scenario has no plan that switches could follow",
                where=where,
                hint="name a plan in `fabric`, or give `switch: {kind: thresholds, ...}`",
            )
        return _plan_rules(plan)
    if isinstance(document, PriorityDropping):
        size_bytes = document.size_bytes
        if size_bytes is None:
            size_bytes = 2 * bandwidth_delay_bytes(topology, packet_bytes, ANSWER_BYTES)
            size_bytes = min(size_bytes, buffer_bytes or size_bytes)
        return _equal_ports(("data",), (Rule(),), size_bytes, BY_RANK)
    if buffer_bytes is None:
        raise UserInputError(
            "nobody says how much memory a port has", where="buffer", hint="give `buffer: 512KB`, say"
        )
    if isinstance(document, Thresholds):
        by_class = [Rule(float(each.threshold_bytes), float(each.limit_bytes)) for each in document.classes]
        names = ("control", *(f"gradient-{place}" for place in range(len(by_class))))
        return _equal_ports(names, (Rule(), *by_class), buffer_bytes)
    if isinstance(document, Trimming):
        data = Rule(limit=float(document.packets * packet_bytes))
        return _equal_ports(("control", "data"), (Rule(), data), buffer_bytes, TRIM)
    rule = Rule()
    if isinstance(document, Marking | Priorities):
        threshold_bytes = document.threshold_packets * packet_bytes
        if threshold_bytes > buffer_bytes:
            raise UserInputError(
                f"K of {threshold_bytes} B lies above the {buffer_bytes} B of a port's memory",
                where=f"{where}.k",
                expected=f"at most {buffer_bytes // packet_bytes} packets",
            )
        rule = Rule(float(threshold_bytes))
    if isinstance(document, Priorities):
        names = tuple(f"priority-{place}" for place in range(document.classes))
        by = MARK_BY_PORT if document.marking == "port" else PLAIN
        rules = _equal_ports(names, (rule,) * document.classes, buffer_bytes, by)
        return replace(rules, gradients=tuple(range(document.classes)))
    return _equal_ports(("data",), (rule,), buffer_bytes)


def _equal_ports(
    names: tuple[str, ...], rules: tuple[Rule, ...], buffer_bytes: int, discipline: int = PLAIN
) -> SwitchRules:
    """All ports with the same rules, and a memory of their own; answers go in the first class."""
    return SwitchRules(
        names,
        answer_classes=(0,) * len(names),
        gradients=tuple(range(1, len(names))) or (0,),
        rules=lambda _switch, _port: rules,
        memory=lambda switch, port: (f"{switch.name}:{port.name}", buffer_bytes),
        discipline=discipline,
    )


def _plan_rules(plan: Plan) -> SwitchRules:
    kinds = [entry.kind for entry in plan.classes]
    control = kinds.index(ClassKind.CONTROL) if ClassKind.CONTROL in kinds else 0
    shares = [entry.guaranteed_share or 0.0 for entry in plan.classes]

    def rules(switch: Switch, port: Port) -> tuple[Rule, ...]:
        profile = plan.port_profile(switch, port)
        return tuple(_rule(profile, place, share) for place, share in enumerate(shares))

    def memory(switch: Switch, port: Port) -> tuple[str, int]:
        profile = plan.port_profile(switch, port)
        if profile.pool_bytes is not None:
            return switch.name, profile.pool_bytes
        return f"{switch.name}:{port.name}", profile.buffer_bytes

    return SwitchRules(
        tuple(entry.name for entry in plan.classes),
        tuple(control if kind is ClassKind.GRADIENT else place for place, kind in enumerate(kinds)),
        tuple(place for place, kind in enumerate(kinds) if kind is ClassKind.GRADIENT),
        rules,
        memory,
        background_class=kinds.index(ClassKind.BACKGROUND) if ClassKind.BACKGROUND in kinds else None,
    )


def _rule(profile: PortProfile, place: int, share: float) -> Rule:
    queue = profile.queues[place]
    limit = float(queue.limit.size_bytes) if isinstance(queue.limit, BytesLimit) else None
    alpha = None
    if isinstance(queue.limit, AlphaLimit):
        profile.length_bytes(queue.limit)  # refuses an alpha of a memory whose size nobody knows
        alpha = 2.0**queue.limit.exponent
    threshold = queue.ecn_threshold_bytes
    return Rule(None if threshold is None else float(threshold), limit, alpha, share)
