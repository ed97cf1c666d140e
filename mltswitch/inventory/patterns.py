"""Ansible's patterns of hosts and groups, as `--limit` takes them."""

import fnmatch
import re
from collections.abc import Mapping
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.inventory.listing import shown

_PARTS: Final = re.compile(r"(?:[^\s:\[\]]|\[[^\]]*\])+")
_POSITION: Final = re.compile(r"[^~].*\[(?:-?\d+|\d+[:-]\d*)\]")


def matching(limit: str, groups: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Hosts that a pattern selects; `groups` are those of each host.

    Parts separated by `,` or `:` name hosts or groups, with `*`, `?` and `[abc]`, or as a regular expression
    after `~`. They add up; those after `&` are also required, those after `!` excluded. Raises UserInputError
    for a part that matches nothing, and for positions (`leafs[0]`), which change with the order in a file.
    """
    parts = [part.strip() for part in limit.split(",")] if "," in limit else _PARTS.findall(limit)
    parts = sorted((part for part in parts if part), key=lambda part: " &!".find(part[0]))
    chosen = set(groups) if parts and parts[0][0] in "&!" else set()
    for part in parts:
        if part[0] == "&":
            chosen &= _hosts(part[1:], groups)
        elif part[0] == "!":
            chosen -= _hosts(part[1:], groups)
        else:
            chosen |= _hosts(part, groups)
    return chosen


def _hosts(pattern: str, groups: Mapping[str, tuple[str, ...]]) -> set[str]:
    if pattern in groups:
        return {pattern}
    known = {*groups, *(group for inside in groups.values() for group in inside)}
    try:
        expression = re.compile(pattern[1:] if pattern[:1] == "~" else fnmatch.translate(pattern))
    except re.error:
        expression = re.compile(r"(?!)")
    matches = {name for name in known if expression.match(name)}
    if not matches or _POSITION.fullmatch(pattern):
        listed = ", ".join(sorted(known)[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
        what = f"no device or group {shown(pattern)}"
        if _POSITION.fullmatch(pattern):
            what = f"{shown(pattern)} is a position, which depends on the order in a file"
        raise UserInputError(what, where="--limit", expected=f"some of {listed}")
    by_group = {host for host, inside in groups.items() if not matches.isdisjoint(inside)}
    is_plain = pattern[0] != "~" and not {*".?*["} & {*pattern}
    return by_group if by_group and is_plain else by_group | {host for host in groups if host in matches}
