"""A plan rounded to what one device can express, driven by its capabilities alone."""

from dataclasses import dataclass, replace

from mltswitch.capabilities import AlphaLimit, BytesLimit, Capabilities, Limit, Unlimited
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan import ClassKind, Plan, Port, PortProfile, PortRole, QueueSettings, predict_port
from mltswitch.targets.base import Quantised, Rounding
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
from mltswitch.units import format_bytes
from mltswitch.wire.tos import DSCP_COUNT


def quantise(plan: Plan, switch_name: str, capabilities: Capabilities) -> Quantised:
    """State of one switch in the device's steps.

    Raises:
        UnsupportedPlanError: the device has no way to say it.
        UserInputError: the plan contradicts itself, or does not know the switch.
    """
    switch = plan.topology.switch(switch_name)
    class_queues = assign_queues(plan, switch_name, capabilities)
    dscps = _spread_dscps(plan)
    ports: list[PortState] = []
    roundings: list[Rounding] = []
    rounded: dict[PortRole, tuple[tuple[QueueState, ...], list[Rounding]]] = {}
    for port in switch.ports:
        profile = plan.port_profile(capabilities.platform, capabilities.hardware, port.role)
        if port.role not in rounded:
            rounder = _Rounder(plan, profile, capabilities, switch_name)
            rounded[port.role] = rounder.queues(class_queues, dscps)
        queues, changes = rounded[port.role]
        ports.append(_port_state(port, profile, queues))
        roundings += [replace(change, port=port.name) for change in changes]
    routes = tuple(RouteState(r.prefix, r.next_hop, r.port) for r in plan.topology.routes(switch_name))
    return Quantised(SwitchState(tuple(ports), routes), tuple(roundings), class_queues)


def assign_queues(plan: Plan, switch_name: str, capabilities: Capabilities) -> dict[str, int]:
    """Traffic class → hardware queue: the first classes the first-served queues, background the last."""
    available = capabilities.queues
    if len(plan.classes) > len(available):
        kept = "".join(f"; queue {queue}: {why}" for queue, why in capabilities.reserved_queues)
        spare = _spare_queues(plan, len(available))
        raise UnsupportedPlanError(
            f"the plan has {len(plan.classes)} classes, {capabilities.hardware} has {len(available)} queues "
            f"that a plan may use{kept}",
            where=f"{switch_name}: classes",
            hint=f"set classes.gradients.queues to {spare} or fewer" if spare else "",
        )
    if capabilities.creates_queues:
        available = available[: len(plan.classes)]
    names = [entry.name for entry in plan.classes]
    return dict(zip(names[:-1], available, strict=False)) | {names[-1]: available[-1]}


def _spare_queues(plan: Plan, available: int) -> int:
    others = sum(entry.kind is not ClassKind.GRADIENT for entry in plan.classes)
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


def _port_state(port: Port, profile: PortProfile, queues: tuple[QueueState, ...]) -> PortState:
    return PortState(port.name, port.trusted, profile.rate_bps if profile.shaped else None, queues)


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

    def queues(
        self, class_queues: dict[str, int], dscps: dict[str, tuple[int, ...]]
    ) -> tuple[tuple[QueueState, ...], list[Rounding]]:
        """The queues in the device's steps, and every value that changed, its port left open."""
        if self.profile.shaped and not self.capabilities.can_shape:
            raise UnsupportedPlanError(
                f"{self.capabilities.hardware} cannot hold a port to {self.profile.rate_bps} bit/s",
                where=self._where,
            )
        states: list[QueueState] = []
        given: list[QueueSettings] = []
        for settings in self.profile.queues:
            threshold = self._threshold(settings)
            limit = self._limit(settings, threshold or 0)
            name = settings.traffic_class
            states.append(QueueState(class_queues[name], dscps[name], threshold, limit))
            given.append(settings.model_copy(update={"ecn_threshold_bytes": threshold, "limit": limit}))
        return tuple(states), self._compare(given, class_queues)

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
        if not isinstance(wanted, BytesLimit):
            raise UnsupportedPlanError(
                f"limit {wanted} of {settings.traffic_class} is not in bytes", where=self._where
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

    def _effective_bytes(self, limit: Limit) -> int:
        """What a limit amounts to when this queue alone is congested."""
        if isinstance(limit, BytesLimit):
            return limit.size_bytes
        if isinstance(limit, AlphaLimit) and self.capabilities.limit.pool_bytes is not None:
            return limit.resting_bytes(self.capabilities.limit.pool_bytes)
        return self.profile.buffer_bytes

    def _compare(self, given: list[QueueSettings], class_queues: dict[str, int]) -> list[Rounding]:
        if all(
            (wanted.ecn_threshold_bytes, wanted.limit) == (got.ecn_threshold_bytes, got.limit)
            for wanted, got in zip(self.profile.queues, given, strict=True)
        ):
            return []
        effective = tuple(
            settings.model_copy(update={"limit": BytesLimit(self._effective_bytes(settings.limit))})
            for settings in given
        )
        after = predict_port(self.plan, self.profile.model_copy(update={"queues": effective}))
        roundings: list[Rounding] = []
        for wanted, got in zip(self.profile.queues, given, strict=True):
            name = wanted.traffic_class
            old, new = wanted.prediction, after[name]
            for field, planned, possible in (
                ("ecn_threshold_bytes", wanted.ecn_threshold_bytes, got.ecn_threshold_bytes),
                ("limit", wanted.limit, got.limit),
            ):
                if planned == possible:
                    continue
                roundings.append(
                    Rounding(
                        port="",
                        queue=class_queues[name],
                        traffic_class=name,
                        field=field,
                        wanted=self._text(planned),
                        given=self._text(possible),
                        loss_unimportant=(old.loss_unimportant, new.loss_unimportant) if old else None,
                        loss_important=(old.loss_important, new.loss_important) if old else None,
                    )
                )
        return roundings

    def _text(self, value: int | Limit | None) -> str:
        if isinstance(value, int):
            return format_bytes(value)
        if isinstance(value, AlphaLimit):
            return f"{value} (about {format_bytes(self._effective_bytes(value))})"
        return str(value)
