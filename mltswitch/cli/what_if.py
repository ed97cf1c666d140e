"""`mltswitch plan --what-if`: what other buffers or another traffic would change, as text and as JSON."""

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter, itemgetter
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from mltswitch.cli.output import figure, table
from mltswitch.plan import Plan, PortProfile
from mltswitch.planning.what_if import WhatIf
from mltswitch.queueing import kind_of
from mltswitch.units import format_bps, format_ratio


def what_if_document(found: WhatIf, changes: str) -> dict[str, Any]:
    """All figures of the three plans side by side."""
    plans = {"now": found.now, "kept": found.kept, "anew": found.anew}
    return {
        "what_if": changes,
        "profile": found.now.provenance.profile_name,
        "model": found.anew.provenance.queueing_model,
        "kind": kind_of(found.anew.provenance.queueing_model),
        "why_not_kept": found.why_not_kept,
        "ports": [_port(plans, entry) for entry in found.anew.port_profiles],
        "end_to_end": [
            _path(_each(_each(plans, attrgetter("end_to_end")), itemgetter(place)))
            for place, _ in enumerate(found.anew.end_to_end)
        ],
        "extra_rounds": _each(plans, _expected_rounds),
        "unmet": _each(plans, lambda plan: plan.unmet),
    }


def _each(given: Mapping[str, Any], pick: Callable[[Any], Any]) -> dict[str, Any]:
    """Something of each of the three; None of what is not there."""
    return {key: None if value is None else pick(value) for key, value in given.items()}


def _expected_rounds(plan: Plan) -> float:
    """Training rounds beyond lossless training, over the plan's scenarios by their weights."""
    return sum(entry.weight * (entry.extra_rounds or 0.0) for entry in plan.scenarios)


def _path(paths: Mapping[str, Any]) -> dict[str, Any]:
    """The losses of one class from end to end."""
    names = ("loss_unimportant", "loss_important", "extra_rounds")
    return {"traffic_class": paths["anew"].traffic_class} | {
        name: _each(paths, attrgetter(name)) for name in names
    }


def _port(plans: Mapping[str, Plan | None], anew: PortProfile) -> dict[str, Any]:
    """One kind of port in each plan."""
    own = _each(plans, lambda plan: next(each for each in plan.port_profiles if each.key == anew.key))
    return {
        "platform": anew.platform,
        "hardware": anew.hardware,
        "role": anew.role.value,
        "rate_bps": anew.rate_bps,
        "load": _each(own, attrgetter("load")),
        "buffer_bytes": _each(own, attrgetter("buffer_bytes")),
        "classes": [
            _class(_each(_each(own, attrgetter("queues")), itemgetter(place)))
            for place, queue in enumerate(anew.queues)
            if queue.ecn_threshold_bytes
        ],
    }


def _class(queues: Mapping[str, Any]) -> dict[str, Any]:
    """The thresholds of one class, and what is predicted of them."""
    predictions = _each(queues, attrgetter("prediction"))
    names = ("loss_unimportant", "loss_important", "mean_delay_seconds", "p99_delay_seconds")
    return {
        "traffic_class": queues["anew"].traffic_class,
        "ecn_threshold_bytes": _each(queues, attrgetter("ecn_threshold_bytes")),
        "limit": _each(queues, lambda queue: str(queue.limit)),
    } | {name: _each(predictions, attrgetter(name)) for name in names}


def what_if_text(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The same as tables: each figure now → with the thresholds as they are → with new ones."""
    yield Text(
        f"What if {document['what_if']}: plan for {document['profile']}; losses and delays are "
        f"{document['kind']}, loss model '{document['model']}'."
    )
    yield Text("Each figure: now → with the thresholds as they are → planned anew.")
    if document["why_not_kept"]:
        yield f"not as they are: {document['why_not_kept']}"
    columns = "class | S [B] | L | loss unimportant # | loss important # | mean delay [µs] | p99 delay [µs]"
    ports: dict[tuple[str, tuple[tuple[str, ...], ...]], list[str]] = {}
    for port in document["ports"]:
        place = (
            f"{format_bps(port['rate_bps'])}, load {_arrow(port['load'], '.3g')}, buffer "
            f"{_arrow(port['buffer_bytes'], ',')} B"
        )
        rows = tuple(_row(each) for each in port["classes"])
        ports.setdefault((place, rows), []).append(f"{port['platform']} {port['hardware']} {port['role']}")
    for (place, rows), names in ports.items():
        yield table(f"{', '.join(names)}: {place}", columns, rows)
    losses = [
        (
            each["traffic_class"],
            _ratios(each["loss_unimportant"]),
            _ratios(each["loss_important"]),
            _arrow(each["extra_rounds"], ".3g"),
        )
        for each in document["end_to_end"]
    ]
    yield table("End to end", "class | loss unimportant # | loss important # | extra rounds #", losses)
    yield f"Extra training rounds over the scenarios: {_arrow(document['extra_rounds'], '.3g')}"
    for key, lines in document["unmet"].items():
        yield from (f"not met, {key}: {line}" for line in lines or ())


def _row(each: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        each["traffic_class"],
        _arrow(each["ecn_threshold_bytes"], ","),
        _joined([*each["limit"].values()]),
        _ratios(each["loss_unimportant"]),
        _ratios(each["loss_important"]),
        *(_arrow(each[name], ",.0f", 1e6) for name in ("mean_delay_seconds", "p99_delay_seconds")),
    )


def _arrow(figures: Mapping[str, float | None], form: str, factor: float = 1) -> str:
    return _joined([figure(each, form, factor) for each in figures.values()])


def _ratios(figures: Mapping[str, float | None]) -> str:
    return _joined(["-" if each is None else format_ratio(each) for each in figures.values()])


def _joined(values: list[Any]) -> str:
    """`a → b → c`; one value where nothing changes."""
    words = ["-" if each is None else str(each) for each in values]
    return words[0] if {*words} <= {words[0], "-"} else " → ".join(words)
