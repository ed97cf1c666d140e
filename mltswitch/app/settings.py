"""Reads settings from text, NAME=VALUE, and the topology of a job."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltswitch.documents import load_document, parse_yaml
from mltswitch.errors import UserInputError
from mltswitch.overlay.routes import Routes


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The topology of a training job as options say it: by name and settings, or by a file of routes."""

    topology: str | None
    """A topology's name; None: star, or tree where there are routes."""
    topology_texts: Sequence[str]
    """The topology's settings, each `NAME=VALUE`."""
    routes_file: Path | None
    """File with the trees for the ranks of the job; None: there is none."""

    def chosen(self) -> tuple[str, dict[str, Any]]:
        """The topology's name and its settings; raises UserInputError for routes beside another topology."""
        settings = named_values("--topology-setting", self.topology_texts)
        if self.routes_file is None:
            return self.topology or "star", settings
        if self.topology not in {None, "tree"}:
            raise UserInputError("are of the topology tree", where="--routes", expected="no other --topology")
        return "tree", settings | load_document(self.routes_file, Routes).topology_settings


def named_values(where: str, texts: Sequence[str]) -> dict[str, Any]:
    """The values of an option that may be given several times, each `NAME=VALUE` with the value as YAML.

    Raises UserInputError naming the option, also for a name that is given twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not sign or name in found:
            raise UserInputError(f"{text!r:.60}", where=where, expected="NAME=VALUE, each name once")
        found[name] = parse_yaml(value, where=f"{where} {name}")
    return found
