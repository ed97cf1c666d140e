"""The revisions of an emulated NVUE: pending, applied, saved; each is a whole configuration."""

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from switchsim.cumulus_schema import SchemaError, matched
from switchsim.cumulus_tree import Tree, leaves, remove, set_leaf

_TYPES: Final = {"swp": "swp", "eth": "eth", "lo": "loopback", "bond": "bond", "vlan": "svi"}
_PERCENT: Final = 100
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
        candidate = self.candidate()
        for path in _paths(names[:-1] if has_value else names):
            set_leaf(candidate, path, _value(names[-1][0]) if has_value else None)
            _add_types(candidate, path)

    def unset(self, words: Sequence[str]) -> None:
        """`nv unset`; raises SchemaError."""
        names, _ = matched(words, is_prefix=True)
        candidate = self.candidate()
        for path in _paths(names):
            remove(candidate, path)

    def patch(self, operations: Any) -> None:
        """`nv config patch` with the contents of a file; raises SchemaError."""
        if not isinstance(operations, list) or not all(isinstance(part, dict) for part in operations):
            raise SchemaError("must contain a list of operation objects")
        for part in operations:
            for verb, tree in part.items():
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
        check(config, self.ports)
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


def _paths(names: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = [()]
    for alternatives in names:
        paths = [(*path, name) for path in paths for name in alternatives]
    return paths


def _value(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdigit() else text


def _add_types(tree: Tree, path: tuple[str, ...]) -> None:
    """What the command line adds to an object without being asked."""
    match path:
        case ("interface", name, *_):
            kind = next((kind for start, kind in _TYPES.items() if name.startswith(start)), None)
            if kind is not None:
                tree["interface"][name].setdefault("type", kind)
        case ("vrf", vrf, "router", "static", route, *rest) if "via" in rest:
            entry = tree["vrf"][vrf]["router"]["static"][route]
            entry.setdefault("address-family", "ipv6-unicast" if ":" in route else "ipv4-unicast")
            hop = rest[rest.index("via") + 1]
            node = entry
            for name in rest[: rest.index("via") + 2]:
                node = node[name]
            kind = "blackhole" if hop == "blackhole" else "interface" if hop[0].isalpha() else "ipv4-address"
            node.setdefault("type", kind)


def check(config: Tree, ports: Sequence[str]) -> None:
    """What NVUE checks when it applies; raises RefusedConfigError."""
    qos = config.get("qos", {})
    for name, interface in config.get("interface", {}).items():
        if name.startswith("swp") and name not in ports:
            raise RefusedConfigError(f"interface.{name}: no such port")
        for acl in interface.get("acl", {}):
            if "type" not in config.get("acl", {}).get(acl, {}):
                raise RefusedConfigError(f"interface.{name}.acl.{acl}: no access list with a type")
        for kind, binding in interface.get("qos", {}).items():
            profile = binding["profile"]
            if profile not in qos.get(kind, {}) and profile != "default-global":
                raise RefusedConfigError(f"interface.{name}.qos.{kind}.profile: no profile {profile!r}")
    for name, profile in qos.get("congestion-control", {}).items():
        for number, entry in profile.get("traffic-class", {}).items():
            low, high = entry.get("min-threshold", 150_000), entry.get("max-threshold", 1_500_000)
            if low > high or low == 0:
                raise RefusedConfigError(
                    f"qos.congestion-control.{name}.traffic-class.{number}: min-threshold {low}, "
                    f"max-threshold {high}"
                )
    for name, profile in qos.get("egress-scheduler", {}).items():
        _check_scheduler(name, profile.get("traffic-class", {}))
    for name, profile in qos.get("egress-shaper", {}).items():
        _check_shaper(name, profile)


def _check_scheduler(name: str, classes: Tree) -> None:
    total = 0
    for number, entry in classes.items():
        where = f"qos.egress-scheduler.{name}.traffic-class.{number}"
        if entry.get("mode") == "strict" and "bw-percent" in entry:
            raise RefusedConfigError(f"{where}: bw-percent does not fit mode strict")
        if entry.get("mode") != "strict" and "bw-percent" not in entry:
            raise RefusedConfigError(f"{where}: mode dwrr needs bw-percent")
        total += entry.get("bw-percent", 0)
    if total > _PERCENT:
        raise RefusedConfigError(f"qos.egress-scheduler.{name}: bw-percent {total} in all")


def _check_shaper(name: str, profile: Tree) -> None:
    """A class must not exceed the port (user guide, Shaping); that its rates are in order is ours."""
    port_kbps = profile.get("port-max-rate", _LARGEST_RATE_KBPS)
    for number, entry in profile.get("traffic-class", {}).items():
        low, high = entry.get("min-rate", 0), entry.get("max-rate", _LARGEST_RATE_KBPS)
        if not low <= high or ("max-rate" in entry and high > port_kbps):
            raise RefusedConfigError(
                f"qos.egress-shaper.{name}.traffic-class.{number}: min-rate {low}, max-rate {high}, "
                f"port-max-rate {port_kbps}"
            )
