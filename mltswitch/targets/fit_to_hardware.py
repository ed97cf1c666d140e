"""Rounds a plan to what one device's capabilities can express, and tells what it cannot do at all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mltswitch.capabilities import (
    AlphaLimit,
    Bandwidth,
    BitRate,
    BytesLimit,
    Capabilities,
    Limit,
    Unlimited,
)
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan import (
    ClassKind,
    Plan,
    PortProfile,
    PortRole,
    QueueSettings,
    Segments,
    Switch,
    TrafficClass,
    check_lossless,
    check_spray_mode,
)
from mltswitch.plan.trust import background_dscp, forbidden_dscps, leak
from mltswitch.targets.base import FittedState, Rounding
from mltswitch.targets.state import PortState, QueueState, SegmentRouteState, SegmentRouting, SwitchState
from mltswitch.units import format_bytes, format_ratio
from mltswitch.wire.tos import DSCP_COUNT

SMALL_DIFFERENCE: Final = 1e-3
"""Relative difference of a bandwidth from the planned one below which nothing is reported."""


def fit_to_hardware(plan: Plan, switch_name: str, capabilities: Capabilities) -> FittedState:
    """The state of one switch, rounded to the values that the device can have.

    Raises:
        UnsupportedPlanError: the device cannot express the plan.
        UserInputError: the plan contradicts itself, or does not know the switch.
    """
    switch = plan.topology.switch(switch_name)
    check_spray_mode(plan.paths.mode, capabilities, switch_name)
    class_queues = assign_queues(plan, switch_name, capabilities)
    dscps = _spread_dscps(plan)
    host_dscps = _without_network_control(plan, dscps) if capabilities.remaps_host_control else dscps
    ports: list[PortState] = []
    roundings: list[Rounding] = []
    rounded: dict[tuple[PortRole, int, bool], _Rounded] = {}
    for port in switch.ports:
        # What a port makes background's altogether has no code points of its own to send elsewhere.
        remaps = port.peer_is_host and (port.trusted or not capabilities.rewrites_code_points)
        alike_ports = (port.role, port.rate_bps, remaps)
        if alike_ports not in rounded:
            rounder = _Rounder(plan, plan.port_profile(switch, port), capabilities, switch_name)
            rounded[alike_ports] = rounder.port(class_queues, host_dscps if remaps else dscps)
        alike = rounded[alike_ports]
        rewritten = forbidden_dscps(plan.classes, port) if capabilities.rewrites_code_points else ()
        ports.append(PortState(port.name, port.trusted, alike.shaped_bps, alike.queues, rewritten=rewritten))
        roundings += [Rounding(port.name, *changed) for changed in alike.changes]
    state = SwitchState(
        tuple(ports),
        plan.topology.routes(switch_name),
        segment_routing(plan, switch),
        plan.paths.mode == "packet",
        background_dscp(plan.classes) if any(port.rewritten for port in ports) else 0,
    )
    leaks = leak(plan.classes, switch, capabilities)
    unsupported = (*unsupported_by(plan, switch, capabilities), *([leaks] if leaks else []))
    return FittedState(state, tuple(roundings), class_queues, capabilities, unsupported, leaks)


def assign_queues(plan: Plan, switch_name: str, capabilities: Capabilities) -> dict[str, int]:
    """Traffic class → hardware queue: the first classes the first-served queues, background the last.

    Lossless classes get the queues that the device reserves for them, both in ascending order.
    """
    lossless = [entry.name for entry in plan.classes if entry.kind is ClassKind.LOSSLESS]
    check_lossless(lossless, capabilities, switch_name)
    names = [entry.name for entry in plan.classes if entry.kind is not ClassKind.LOSSLESS]
    available = capabilities.queues_beside(len(lossless))
    if len(names) > len(available):
        kept = "".join(f"; queue {queue}: {why}" for queue, why in capabilities.reserved_queues)
        spare = _spare_queues(plan, len(available))
        raise UnsupportedPlanError(
            f"the plan has {len(names)} classes, {capabilities.hardware} has {len(available)} queues "
            f"that a plan may use{kept}",
            where=f"{switch_name}: classes",
            hint=f"set classes.gradients.queues to {spare} or fewer" if spare else "",
        )
    if capabilities.creates_queues:
        available = available[: len(names)]
    return {
        **dict(zip(names[:-1], available, strict=False)),
        **dict(zip(lossless, capabilities.lossless_queues, strict=False)),
        names[-1]: available[-1],
    }


def _spare_queues(plan: Plan, available: int) -> int:
    beside = (ClassKind.GRADIENT, ClassKind.LOSSLESS)
    others = sum(entry.kind not in beside for entry in plan.classes)
    return max(0, available - others)


def _spread_dscps(plan: Plan) -> dict[str, tuple[int, ...]]:
    """All 64 code points: what the plan does not name is background, the last class."""
    owner: dict[int, str] = {}
    for entry in plan.classes:
        for dscp in entry.dscp:
            if dscp in owner:
                raise UserInputError(
                    f"DSCP {dscp} is given to {owner[dscp]} and to {entry.name}", where="classes"
                )
            owner[dscp] = entry.name
    last = plan.classes[-1].name
    spread: dict[str, list[int]] = {entry.name: [] for entry in plan.classes}
    for dscp in range(DSCP_COUNT):
        spread[owner.get(dscp, last)].append(dscp)
    return {name: tuple(dscps) for name, dscps in spread.items()}


def _without_network_control(plan: Plan, dscps: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The same for ports of hosts, which have no business in network control."""
    last = plan.classes[-1].name
    taken = [
        dscp
        for entry in plan.classes
        if entry.kind is ClassKind.NETWORK_CONTROL
        for dscp in dscps[entry.name]
    ]
    return {
        name: tuple(sorted((*held, *taken))) if name == last else tuple(d for d in held if d not in taken)
        for name, held in dscps.items()
    }


@dataclass(frozen=True, slots=True)
class _Rounded:
    """What ports of one role have in common."""

    shaped_bps: int | None
    queues: tuple[QueueState, ...]
    changes: tuple[tuple[Any, ...], ...]
    """Of each value that changed, all fields of a `Rounding` but its first, the port."""


@dataclass(frozen=True, slots=True)
class _Rounder:
    """Rounds the thresholds of one port profile."""

    plan: Plan
    profile: PortProfile
    capabilities: Capabilities
    switch: str

    @property
    def _where(self) -> str:
        return f"{self.switch}: {self.profile.role} ports"

    def port(self, class_queues: dict[str, int], dscps: dict[str, tuple[int, ...]]) -> _Rounded:
        """A port in the device's steps, and every value that changed."""
        if self.profile.shaped and not self.capabilities.can_shape:
            raise UnsupportedPlanError(
                f"{self.capabilities.hardware} cannot hold a port to {self.profile.rate_bps} bit/s",
                where=self._where,
            )
        states: list[QueueState] = []
        bandwidths: list[Rounding] = []
        for settings in self.profile.queues:
            name = settings.traffic_class
            if self.plan.class_by_name[name].kind is ClassKind.LOSSLESS:
                states.append(
                    QueueState(class_queues[name], dscps[name], None, Unlimited(), is_lossless=True)
                )
                continue
            threshold = self._threshold(settings)
            limit = self._limit(settings, threshold or 0)
            minimum, maximum = self._bandwidths(class_queues[name], self.plan.class_by_name[name], bandwidths)
            states.append(QueueState(class_queues[name], dscps[name], threshold, limit, minimum, maximum))
        changes = self._compare(states) + bandwidths
        return _Rounded(
            self.profile.rate_bps if self.profile.shaped else None,
            tuple(states),
            tuple(change[1:] for change in changes),
        )

    def _bandwidths(
        self, queue: int, entry: TrafficClass, changes: list[Rounding]
    ) -> tuple[Bandwidth | None, Bandwidth | None]:
        """What background is guaranteed and what control may take; `changes` gets what is not exact."""
        minimum: Bandwidth | None = None
        maximum: Bandwidth | None = None
        lower, upper = self.capabilities.minimum_bandwidth, self.capabilities.maximum_bandwidth
        can_guarantee = self.capabilities.can_guarantee(is_last=entry.kind is ClassKind.BACKGROUND)
        if entry.guaranteed_share is not None and lower is not None and can_guarantee:
            minimum = lower.at_least(entry.guaranteed_share, self.profile.rate_bps)
            changes += self._inexact("minimum", queue, entry.name, entry.guaranteed_share, minimum)
        if entry.kind is ClassKind.CONTROL and entry.rate_cap_share is not None and upper is not None:
            maximum = upper.at_most(entry.rate_cap_share, self.profile.rate_bps)
            changes += self._inexact("maximum", queue, entry.name, entry.rate_cap_share, maximum)
        return minimum, maximum

    def _inexact(
        self, field: str, queue: int, traffic_class: str, wanted: float, given: Bandwidth
    ) -> Iterator[Rounding]:
        share = given.bps / self.profile.rate_bps if isinstance(given, BitRate) else given.percent / 100
        if abs(share - wanted) > SMALL_DIFFERENCE * wanted:
            yield Rounding("", queue, traffic_class, field, f"{format_ratio(wanted)} of the port", str(given))

    def _threshold(self, settings: QueueSettings) -> int | None:
        wanted = settings.ecn_threshold_bytes
        if wanted is None:
            return None
        can = self.capabilities.threshold
        rounded = max(-(-wanted // can.step_bytes) * can.step_bytes, can.minimum_bytes)
        if rounded > can.maximum_bytes:
            raise UnsupportedPlanError(
                f"ECN threshold {wanted} B of {settings.traffic_class} is above what "
                f"{self.capabilities.hardware} takes",
                where=self._where,
                expected=f"at most {can.maximum_bytes} B",
            )
        return rounded

    def _limit(self, settings: QueueSettings, threshold_bytes: int) -> Limit:
        """Down to the device's step, but never below the rounded threshold: there it would never act."""
        wanted, can = settings.limit, self.capabilities.limit
        if can.kind == "none":
            return Unlimited()
        if can.kind == "alpha" and isinstance(wanted, AlphaLimit) and wanted.exponent in can.alpha_exponents:
            return wanted
        if not isinstance(wanted, BytesLimit):
            raise UnsupportedPlanError(
                f"limit {wanted} of {settings.traffic_class} is none that {self.capabilities.hardware} has",
                where=self._where,
            )
        if can.kind == "bytes":
            steps = min(wanted.size_bytes, can.maximum_bytes) // can.step_bytes
            least = -(-threshold_bytes // can.step_bytes)
            if least * can.step_bytes > can.maximum_bytes:
                raise UnsupportedPlanError(
                    f"no limit above the threshold {threshold_bytes} B of {settings.traffic_class}",
                    where=self._where,
                    expected=f"at most {can.maximum_bytes} B",
                )
            return BytesLimit(max(steps, least, 1) * can.step_bytes)
        return self._alpha(wanted, threshold_bytes, settings.traffic_class)

    def _alpha(self, wanted: BytesLimit, threshold_bytes: int, traffic_class: str) -> AlphaLimit:
        can = self.capabilities.limit
        if can.pool_bytes is None:
            raise UnsupportedPlanError(
                f"the pool size of {self.capabilities.hardware} is unknown, so alpha cannot be derived",
                where=self._where,
            )
        pool_bytes = can.pool_bytes
        steps = [AlphaLimit(exponent) for exponent in sorted(can.alpha_exponents)]
        above = [step for step in steps if step.resting_bytes(pool_bytes) > threshold_bytes]
        if not above:
            raise UnsupportedPlanError(
                f"no alpha of {self.capabilities.hardware} rests above the threshold {threshold_bytes} B of "
                f"{traffic_class}",
                where=self._where,
                expected=f"below {steps[-1].resting_bytes(pool_bytes)} B, where {steps[-1]} rests",
            )
        return min(above, key=lambda step: abs(step.resting_bytes(pool_bytes) - wanted.size_bytes))

    def _compare(self, given: Sequence[QueueState]) -> list[Rounding]:
        """Every threshold and limit that changed."""
        return [
            Rounding("", got.queue, wanted.traffic_class, field, self._text(before), self._text(possible))
            for wanted, got in zip(self.profile.queues, given, strict=True)
            for field, before, possible in (
                ("ecn_threshold_bytes", wanted.ecn_threshold_bytes, got.ecn_threshold_bytes),
                ("limit", wanted.limit, got.limit),
            )
            if before != possible
        ]

    def _text(self, value: int | Limit | None) -> str:
        if isinstance(value, BytesLimit):
            value = value.size_bytes
        if isinstance(value, int):
            return format_bytes(value)
        if isinstance(value, AlphaLimit) and self.capabilities.limit.pool_bytes is not None:
            return f"{value} (about {format_bytes(value.resting_bytes(self.capabilities.limit.pool_bytes))})"
        return str(value)


def segment_routing(plan: Plan, switch: Switch) -> SegmentRouting | None:
    """The switch's SRv6 locator and routes, where the plan sprays packets by segment lists; else None."""
    block = plan.fabric.addressing.segments
    if block is None:
        return None
    rules = Segments(block, plan.fabric.addressing)
    return SegmentRouting(
        rules.own_locator(switch),
        tuple(
            SegmentRouteState(route.prefix, route.next_hop, route.port)
            for route in rules.routes(switch, plan.topology.tier_index)
        ),
    )


def unsupported_by(plan: Plan, switch: Switch, capabilities: Capabilities) -> Iterator[str]:
    """What the device cannot do and no field of the state can say, a sentence each, for the operator."""
    for entry in plan.classes:
        is_last = entry.kind is ClassKind.BACKGROUND
        if entry.guaranteed_share is not None and not capabilities.can_guarantee(is_last=is_last):
            yield (
                f"{entry.name} is not guaranteed its {format_ratio(entry.guaranteed_share)} of a port: "
                "only the senders' rate cap keeps gradients from starving it"
            )
        cap = entry.rate_cap_share if entry.kind is ClassKind.CONTROL else None
        if cap is not None and capabilities.maximum_bandwidth is None:
            yield (
                f"{entry.name} is not held to {format_ratio(cap)} of a port: a host that "
                "sends more of it starves the gradients"
            )
        if entry.kind is ClassKind.LOSSLESS:
            yield (
                f"{entry.name} keeps the scheduling, PFC and buffers that the switch has for its queue: "
                "mltswitch neither sets nor checks them"
            )
    if not capabilities.demotes_host_control and any(port.peer_is_host for port in switch.ports):
        yield "CS6 and CS7 from hosts are believed: one DSCP map serves all ports"
