"""The revisions of an emulated NVUE: pending, applied, saved; each is a whole configuration."""

import copy
import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from switchsim.cumulus_schema import SchemaError, matched
from switchsim.cumulus_tree import Tree, leaves, remove, set_leaf

_TYPES: Final = {"swp": "swp", "eth": "eth", "lo": "loopback", "bond": "bond", "vlan": "svi"}
_LARGEST_RATE_KBPS: Final = 2**31 - 1


class RefusedConfigError(Exception):
    """`nv config apply` refuses a revision; the text says where and why."""


@dataclass
class Revisions:
    """Everything that NVUE remembers."""

    ports: tuple[str, ...]
    applied: Tree
    saved: Tree
    history: list[Tree] = field(default_factory=list)
    """Applied revisions, the first is number 1."""
    pending: Tree | None = None
    trial: threading.Timer | None = None
    """Returns to the revision before, where a configuration waits to be confirmed."""

    def candidate(self) -> Tree:
        """The pending revision; it begins as the applied one."""
        if self.pending is None:
            self.pending = copy.deepcopy(self.applied)
        return self.pending

    def set(self, words: Sequence[str]) -> None:
        """`nv set`; raises SchemaError."""
        names, has_value = matched(words)
        candidate, value = self.candidate(), names.pop()[0] if has_value else None
        is_number = value is not None and value.isascii() and value.isdigit()
        for path in itertools.product(*names):
            set_leaf(candidate, path, int(value) if value is not None and is_number else value)
            _add_types(candidate, path)

    def unset(self, words: Sequence[str]) -> None:
        """`nv unset`; raises SchemaError."""
        names, _ = matched(words, is_prefix=True)
        candidate = self.candidate()
        for path in itertools.product(*names):
            remove(candidate, path)

    def patch(self, operations: Any) -> None:
        """`nv config patch` with the contents of a file; raises SchemaError."""
        if not isinstance(operations, list) or not all(isinstance(part, dict) for part in operations):
            raise SchemaError("must contain a list of operation objects")
        for verb, tree in (each for part in operations for each in part.items()):
            if verb not in {"set", "unset", "header"}:
                raise SchemaError(f"unknown operation {verb!r}")
            for path, value in leaves(tree or {}):
                if verb == "set":
                    self.set([*path, *([] if value is None else [str(value)])])
                elif verb == "unset":
                    self.unset(path)

    def apply(self, config: Tree, seconds: int | None = None) -> int:
        """Make a configuration run, for a time if `seconds` says so; returns its number, raises
        RefusedConfigError."""
        for problem in _problems(config, self.ports):
            raise RefusedConfigError(problem)
        if seconds is not None:
            self.trial = threading.Timer(seconds, self.end_trial, kwargs={"keep": False})
            self.trial.daemon = True
            self.trial.start()
        self.applied = copy.deepcopy(config)
        self.history.append(self.applied)
        self.pending = None
        return len(self.history)

    def end_trial(self, *, keep: bool) -> bool:
        """Keep what waits to be confirmed, or return to what ran before; False where nothing waits."""
        trial, self.trial = self.trial, None
        if trial is None:
            return False
        trial.cancel()
        if not keep:
            self.apply(self.history[-2])
        return True


def _add_types(tree: Tree, path: tuple[str, ...]) -> None:
    """What the command line adds to an object without being asked."""
    match path:
        case ("interface", name, *_):
            kind = next((kind for start, kind in _TYPES.items() if name.startswith(start)), None)
            if kind is not None:
                tree["interface"][name].setdefault("type", kind)
        case ("vrf", vrf, "router", "static", route, *rest) if "via" in rest:
            node = tree["vrf"][vrf]["router"]["static"][route]
            node.setdefault("address-family", "ipv6-unicast" if ":" in route else "ipv4-unicast")
            hop = rest[rest.index("via") + 1]
            for name in rest[: rest.index("via") + 2]:
                node = node[name]
            kind = "blackhole" if hop == "blackhole" else "interface" if hop[0].isalpha() else "ipv4-address"
            node.setdefault("type", kind)


def _problems(config: Tree, ports: Sequence[str]) -> Iterator[str]:
    """What NVUE refuses when it applies: where, and why."""
    qos = config.get("qos", {})
    for name, interface in config.get("interface", {}).items():
        if name.startswith("swp") and name not in ports:
            yield f"interface.{name}: no such port"
        for acl in interface.get("acl", {}):
            if "type" not in config.get("acl", {}).get(acl, {}):
                yield f"interface.{name}.acl.{acl}: no access list with a type"
        for kind, binding in interface.get("qos", {}).items():
            profile = binding["profile"]
            if profile not in qos.get(kind, {}) and profile != "default-global":
                yield f"interface.{name}.qos.{kind}.profile: no profile {profile!r}"
    yield from _queueing_problems(qos)


def _queueing_problems(qos: Tree) -> Iterator[str]:
    for where, _, entry in _classes(qos, "congestion-control"):
        low, high = entry.get("min-threshold", 150_000), entry.get("max-threshold", 1_500_000)
        if low > high or low == 0:
            yield f"{where}: min-threshold {low}, max-threshold {high}"
    for where, _, entry in _classes(qos, "egress-scheduler"):
        if entry.get("mode") == "strict" and "bw-percent" in entry:
            yield f"{where}: bw-percent does not fit mode strict"
        if entry.get("mode") != "strict" and "bw-percent" not in entry:
            yield f"{where}: mode dwrr needs bw-percent"
    for name, profile in qos.get("egress-scheduler", {}).items():
        total = sum(entry.get("bw-percent", 0) for entry in profile.get("traffic-class", {}).values())
        if total > 100:
            yield f"qos.egress-scheduler.{name}: bw-percent {total} in all"
    # A class must not exceed the port (user guide, Shaping); that its rates are in order is ours.
    for where, profile, entry in _classes(qos, "egress-shaper"):
        low, high = entry.get("min-rate", 0), entry.get("max-rate", _LARGEST_RATE_KBPS)
        port = profile.get("port-max-rate", _LARGEST_RATE_KBPS)
        if not low <= high or ("max-rate" in entry and high > port):
            yield f"{where}: min-rate {low}, max-rate {high}, port-max-rate {port}"


def _classes(qos: Tree, kind: str) -> Iterator[tuple[str, Tree, Tree]]:
    """Each traffic class of each profile of a kind: its place, the profile, its settings."""
    for name, profile in qos.get(kind, {}).items():
        for number, entry in profile.get("traffic-class", {}).items():
            yield f"qos.{kind}.{name}.traffic-class.{number}", profile, entry
