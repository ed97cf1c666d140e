"""Figures of papers as data: a scenario, what it is varied by, what a paper prints, and how it may be read.

A paper never says all that a simulation needs. What it leaves open is a *reading*: changes of the scenario
under a name, with the reason to read the paper so. The documents lie in `reproductions/`.
"""

from copy import deepcopy
from importlib.resources import files
from typing import Any, Final, Literal

from pydantic import Field

from mltswitch.documents import StrictDocument, parse_yaml, validate
from mltswitch.errors import UserInputError, did_you_mean
from mltswitch.network.scenario import SIMULATION_SCHEMA, Name, Scenario

_FOLDER: Final = files("mltswitch.network").joinpath("reproductions")
Changes = dict[str, Any]
"""Fields of a scenario, nested as there; `transports` is a mapping from title to play."""


class Reading(StrictDocument):
    """One way to understand what a paper leaves open."""

    why: str
    changes: Changes = Field(default_factory=dict)


class Reproduction(StrictDocument):
    """A figure of a paper."""

    schema_version: Literal["mltswitch/reproduction/v1"] = Field(alias="schema")
    name: Name
    source: str
    compared: str
    """The transport whose times are compared with those of the others."""
    scenario: Changes
    """A scenario for the largest fabric, without `schema` and `name`."""
    hosts: tuple[int, ...] = Field(min_length=1)
    """Sizes of the fabric; all have the same number of leaves."""
    points: dict[Name, Changes] = Field(min_length=1)
    """What the figure shows beside each other: models, say."""
    readings: dict[Name, Reading] = Field(min_length=1)
    """The first one is what the paper's text says best."""
    paper: dict[Name, dict[str, float]]
    """What the paper prints, for a point."""
    reproduced: dict[str, tuple[float, float]]
    """Bounds within which a figure counts as reproduced; those of transports that are not played are left
    out."""

    def document_of(self, reading: str, point: str, hosts: int) -> Changes:
        """The scenario document of one reading, point and size; raises UserInputError for unknown ones."""
        _known(reading, self.readings, "--reading")
        _known(point, self.points, "--point")
        data = _merged(self.scenario, self.points[point])
        data = _merged(data, self.readings[reading].changes)
        leaves = data["fabric"]["leaves"]
        if hosts % leaves:
            raise UserInputError(
                f"{hosts} hosts are not the same number in each of {leaves} racks",
                where="--hosts",
                expected=f"a multiple of {leaves}",
            )
        data["fabric"] |= {"hosts_per_leaf": hosts // leaves}
        plays = data["transports"]
        data["transports"] = [plays[title] for title in self.scenario["transports"]]  # those that are wanted
        name = f"{self.name}-{reading}-{point}-{hosts}"
        return {"schema": SIMULATION_SCHEMA, "name": name, **data}

    def scenario_of(self, reading: str, point: str, hosts: int) -> Scenario:
        """The same as a checked scenario, whose plays have the figure's titles."""
        document = self.document_of(reading, point, hosts)
        scenario = validate(document, Scenario, where=document["name"])
        return scenario.with_plays(dict(zip(self.scenario["transports"], scenario.plays, strict=True)))

    def with_transports(self, names: tuple[str, ...]) -> "Reproduction":
        """The same with these transports beside the compared one; raises UserInputError for unknown ones."""
        plays = self.scenario["transports"]
        for name in names:
            _known(name, plays, "--transport")
        kept = {title: play for title, play in plays.items() if title in {self.compared, *names}}
        return self.model_copy(update={"scenario": self.scenario | {"transports": kept}})


def _known(name: str, names: Any, where: str) -> None:
    if name not in names:
        raise UserInputError(
            f"{name[:40]!r} is not known{did_you_mean(name, names)}",
            where=where,
            expected=f"one of {', '.join(names)}",
        )


def _merged(data: Changes, changes: Changes) -> Changes:
    """`data` with changes, which go into nested mappings; a play by its name alone becomes a mapping."""
    made = deepcopy(data)
    for name, value in changes.items():
        old = {"transport": {"name": made[name]}} if isinstance(made.get(name), str) else made.get(name)
        is_inner = isinstance(value, dict) and isinstance(old, dict)
        made[name] = _merged(old, value) if is_inner else value  # type: ignore[arg-type]  # is_inner says so
    return made


def reproduction_names() -> tuple[str, ...]:
    """Names of the figures of papers that come with the package, such as `mlt-fig14`."""
    return tuple(sorted(each.name.removesuffix(".yaml") for each in _FOLDER.iterdir()))


def load_reproduction(name: str) -> Reproduction:
    """A bundled figure; raises UserInputError for an unknown one."""
    _known(name, reproduction_names(), "FIGURE")
    text = _FOLDER.joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return validate(parse_yaml(text, where=name), Reproduction, where=name, text=text)
