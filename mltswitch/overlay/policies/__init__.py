"""Routing policies: each is a module that turns a network and a job's nodes into trees."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from mltswitch.documents import plain_words
from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.routes import Routes, RoutesTree, Tree, row

ENTRY_POINT_GROUP: Final = "mltswitch.routes"
MOST_PARENTS: Final = 4_000_000
"""The most entries of all trees of a job, trees times ranks: more would take too much memory."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A routing policy: the object `POLICY` of a module here, or an entry point of `mltswitch.routes`."""

    name: str
    settings: type[BaseModel]
    trees: Callable[[Overlay, Any, Exchange], Mapping[int, Tree] | Sequence[RoutesTree]]
    """Returns a tree for each root, or trees with shares and ways of results; deterministic.

    Called with the network and where the job's nodes are, the checked settings, and the exchange that the
    trees are for. Raises UserInputError for settings that do not fit the network, MachineError.
    """


class NoSettings(BaseModel):
    """The settings of a policy that has none: any is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@cache
def policies() -> Mapping[str, Policy]:
    """All routing policies by name, in alphabetical order."""
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    found = [module.POLICY for module in modules if hasattr(module, "POLICY")]
    found += [entry.load() for entry in entry_points(group=ENTRY_POINT_GROUP)]
    return MappingProxyType({entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)})


def route(overlay: Overlay, policy: str, settings: Mapping[str, Any], exchange: Exchange) -> Routes:
    """The routes of a job, computed by the policy of this name.

    Raises UserInputError for an unknown policy, settings it does not take, or more than MOST_PARENTS parents.
    """
    entry = policies().get(policy)
    if entry is None:
        raise UserInputError(f"{policy!r:.60} is unknown", where="policy", expected=", ".join(policies()))
    try:
        checked = entry.settings.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (policy, *first["loc"])))
        known = ", ".join(entry.settings.model_fields) or "no settings"
        expected = known if first["type"] == "extra_forbidden" else ""
        raise UserInputError(
            f"{first['input']!r:.60}: {plain_words(first)}", where=where, expected=expected
        ) from None
    ranks = len(overlay.ranks)
    if ranks * len(overlay.roots) > MOST_PARENTS:
        problem = f"{len(overlay.roots):,} trees over {ranks:,} ranks"
        hint = "say how many servers there are, or fewer ranks"
        raise UserInputError(problem, where="routes", expected=f"at most {MOST_PARENTS:,} parents", hint=hint)
    trees = entry.trees(overlay, checked, exchange)
    if isinstance(trees, Mapping):
        trees = [row(root, 1 / len(trees), tree, tree, ranks) for root, tree in trees.items()]
    return Routes(
        policy=policy,
        settings=checked.model_dump(mode="json", exclude_unset=True),
        overlay=overlay.sha256(),
        ranks=ranks,
        servers=len(overlay.servers),
        trees=tuple(trees),
    )
