"""The report: a plan's pictures and numbers as one HTML page."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from jinja2 import Environment
from markupsafe import Markup

from mltswitch.errors import MachineError
from mltswitch.plan import Plan
from mltswitch.profile import ModelProfile
from mltswitch.queueing import SimulationSettings
from mltswitch.report.headroom import bounds
from mltswitch.report.palette import THEMES, style_variables
from mltswitch.report.ports import PortGroup, port_groups
from mltswitch.report.sections import (
    Section,
    headroom_section,
    loss_sections,
    note_section,
    sensitivity_section,
    threshold_section,
)
from mltswitch.report.sweep import ANALYTIC_MODELS, AXES, SIMULATE, Axis, Sweep, origin, sweep, sweep_length
from mltswitch.report.template import PAGE, SCRIPT, STYLE, TABLE

Progress = Callable[[str, int, int], None]
"""Called with the step under way, the steps done, and the steps in all."""


SIMULATION: Final = SimulationSettings(packets=1_000_000)
"""Settings of the simulation of each simulated point of a report."""


def plan_report(
    plan: Plan,
    model_profile: ModelProfile,
    simulation: SimulationSettings = SIMULATION,
    progress: Progress | None = None,
) -> str:
    """The report on a plan, as one HTML page; the same input gives the same bytes.

    Args:
        plan: the plan, with its predictions.
        model_profile: the profile that the plan was made from; its sensitivity is drawn.
        simulation: settings for each simulated point.
        progress: called for every step.

    Raises:
        MachineError: the extra `report` is not installed.
    """
    plotly_script()  # before anything that takes long
    groups = port_groups(plan, simulation)
    sweeps = list(_sweeps(groups, progress or _silent))
    limits = bounds(plan, model_profile)
    sections = (
        threshold_section(plan, groups),
        *loss_sections(plan, groups, sweeps, limits),
        sensitivity_section(plan, limits),
        headroom_section(plan, groups, sweeps, limits),
        note_section(plan),
    )
    title = f"{plan.provenance.profile_name} on {plan.fabric.name}: thresholds"
    return render_page(title, _head(plan), sections)


def plotly_script() -> str:
    """The plotly library as a script in the page; raises MachineError where it is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MachineError("plotly is not installed", hint="`pip install 'mltswitch[report]'`") from None
    script: str = get_plotlyjs()
    return script


def _silent(_what: str, _done: int, _total: int) -> None:
    pass


def _sweeps(groups: tuple[PortGroup, ...], progress: Progress) -> Iterator[dict[Axis, Sweep]]:
    models = (*ANALYTIC_MODELS, SIMULATE)
    total = sum(sweep_length(group, models) for group in groups)
    done = 0

    def advance(what: str) -> None:
        nonlocal done
        progress(what, done, total)
        done += 1

    for group in groups:
        yield {axis: sweep(group, axis, models, advance) for axis in AXES}
    progress("report", total, total)


def _head(plan: Plan) -> tuple[tuple[str, str], ...]:
    provenance = plan.provenance
    model = provenance.queueing_model
    return (
        ("Model", f"{provenance.profile_name} (sha256 {provenance.profile_sha256})"),
        ("Fabric", f"{plan.fabric.name} (sha256 {provenance.fabric_sha256})"),
        ("Loss model", f"{model}: figures are {origin(model)} unless they say otherwise"),
        ("Tool", f"mltswitch {provenance.tool_version}"),
    )


def render_page(title: str, head: Iterable[tuple[str, str]], sections: Sequence[Section]) -> str:
    """A complete HTML page of these sections; `head` lists names and values beneath the title.

    Raises MachineError where the extra `report` is not installed.
    """
    environment = Environment(autoescape=True)
    table = environment.from_string(TABLE)
    figures = [figure for section in sections for block in section.blocks for figure in block.figures]
    pictures = {"themes": THEMES, "figures": {figure.name: figure.document() for figure in figures}}
    return environment.from_string(PAGE).render(
        title=title,
        head=head,
        sections=sections,
        draw_table=lambda entry: Markup(table.render(table=entry)),  # noqa: S704  (escaped by its template)
        light=Markup(style_variables("light")),  # noqa: S704  (our text)
        dark=Markup(style_variables("dark")),  # noqa: S704
        style=Markup(STYLE),  # noqa: S704
        script=Markup(SCRIPT),  # noqa: S704
        plotly=Markup(plotly_script()),  # noqa: S704
        pictures=_script_json(pictures),
    )


def _script_json(value: object) -> Markup:
    """JSON inside of a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704
