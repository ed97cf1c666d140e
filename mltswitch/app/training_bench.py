"""Measures a training beside gloo, in networks on this machine: its cases, and the figures of each."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from mltswitch.errors import UserInputError
from mltswitch.lab import Star, running_leaf_spine, running_star
from mltswitch.lab.wan import running_wan
from mltswitch.overlay.wan import LEAST_QUEUE_BYTES, Wan
from mltswitch.training.bench import Case, CaseResult, Settings
from mltswitch.training.bench.ladder import GLOO, ladder_of
from mltswitch.training.changes import UpdateSettings
from mltswitch.units import format_bps, format_bytes, format_ratio, format_seconds

INCAST_SHARE: Final = 1 / 8
"""Share of the switch's buffer that is left to ports in the case `incast`."""
WAN_CASE: Final = "wan"
OF_A_SWITCH: Final = ("round_trip_seconds", "loss", "buffer_bytes", "limit_seconds", "tcp_limit_bps")
"""Figures of a case that are not single values on a WAN."""


def settings_on_wan(wan: Wan, scale: float, *, awareness: bool, auxiliary: bool) -> dict[str, Any]:
    """Settings of the topology `fapt` on a WAN that is slower by `scale`."""
    probe_bytes = UpdateSettings.model_fields["probe_bytes"].default / scale**2
    return {
        "overlay": wan.overlay().model_dump(mode="json", by_alias=True),
        **({"probe_bytes": max(1, round(probe_bytes))} if awareness else {"update_seconds": 0}),
        **({"auxiliary": "sooner"} if auxiliary else {}),
    }


def case_on_wan(wan: Wan) -> Case:
    """The only case that a bench on a WAN has."""
    return Case(WAN_CASE, wan.most_bps(), 0.0, 0.0, LEAST_QUEUE_BYTES)


def cases_of(
    shares: Sequence[float], round_trip: float, rate_bps: int, buffer_bytes: int, *, incast: bool
) -> list[Case]:
    """A case for each loss ratio, and the case `incast`; raises UserInputError naming the option."""
    if not 1_000_000 <= rate_bps <= 10_000_000_000:
        raise UserInputError(format_bps(rate_bps), where="--rate", expected="1Mbps to 10Gbps")
    if not 16_000 <= buffer_bytes <= 1 << 30:
        raise UserInputError(format_bytes(buffer_bytes), where="--buffer", expected="16kB to 1GB")
    found = [
        Case(f"loss {format_ratio(share)}", rate_bps, round_trip, share, buffer_bytes) for share in shares
    ]
    if incast:
        found.append(Case("incast", rate_bps, round_trip, 0.0, int(buffer_bytes * INCAST_SHARE), True))
    return found


def running_network(
    settings: Settings, spines: int, rate_bps: int, wan: Wan | None
) -> AbstractContextManager[Star]:
    """The network of a bench: a WAN, one switch, or two leaves below spines."""
    if wan is not None:
        return running_wan(wan, is_changing=True)
    if not spines:
        return running_star(settings.hosts)
    return running_leaf_spine(settings.hosts, spines, rate_bps, in_turn=settings.rivals // 2)


def network_of(result: CaseResult) -> str:
    """The network of a case, and what limits the communication time in it, as text."""
    case, carried = result.case, result.tcp_limit_bps
    if case.name == WAN_CASE:
        return f"links of at most {format_bps(case.rate_bps)}, which change"
    tcp = f"; one TCP connection carries {format_bps(carried)} at this loss (Mathis)" if carried else ""
    return (
        f"{format_bps(case.rate_bps)}, round trip {format_seconds(case.round_trip_seconds)}, "
        f"loss {format_ratio(case.loss)}, buffer {format_bytes(case.buffer_bytes)}; the link alone takes "
        f"{format_seconds(result.limit_seconds)} a step{tcp}"
    )


def has_ladder(result: CaseResult) -> bool:
    """Whether the parts of MLT were added one by one."""
    return {*GLOO} <= result.methods.keys()


def bench_document(settings: Settings, spines: int, results: Sequence[CaseResult]) -> dict[str, Any]:
    """The printed document with all that was measured."""
    return {
        "kind": "measured",
        "model": settings.task,
        "workers": settings.workers,
        "seed": settings.seed,
        "servers": settings.servers,
        "spines": spines,
        **settings.options,
        "target": results[0].target,
        "elements": results[0].elements,
        "cases": [_case_document(result) for result in results],
    }


def _case_document(result: CaseResult) -> dict[str, Any]:
    found = result.document() | ({"ladder": ladder_of(result)} if has_ladder(result) else {})
    if result.case.name == WAN_CASE:
        found |= dict.fromkeys(found.keys() & set(OF_A_SWITCH))
    return found
