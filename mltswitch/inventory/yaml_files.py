"""The loader of the base install: one YAML file of hosts, with `group_vars` and `host_vars` beside it.

It returns what Ansible would, and refuses what it does not know; ansible-core reads the rest. Precedence
is Ansible's: inline variables of groups, parents before children and else by name, `group_vars` in the same
order, inline variables of the host, `host_vars`.
"""

import json
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mltswitch.documents import parse_yaml, read_text
from mltswitch.errors import UserInputError
from mltswitch.inventory.listing import Listed, Variables, shown

MAXIMUM_GROUP_DEPTH: Final = 32
SUFFIXES: Final = (".yaml", ".yml")
_SECTIONS: Final = ("hosts", "vars", "children")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")


def needs_ansible(what: str, where: object) -> UserInputError:
    """The error for a feature that Ansible's loader reads and this one does not."""
    hint = "install it: pip install ansible-core"
    return UserInputError(f"{what}: only ansible-core reads that", where=str(where), hint=hint)


@dataclass(slots=True)
class _Inventory:
    main: Path
    groups: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"all": ()})
    """Group → the groups above it, `all` first."""
    group_variables: dict[str, Variables] = field(default_factory=dict)
    hosts: dict[str, Variables] = field(default_factory=dict)
    memberships: dict[str, set[str]] = field(default_factory=dict)

    def read_group(self, name: str, body: object, above: tuple[str, ...]) -> None:
        where = f"{self.main}: {name}"
        if name == "ungrouped" or (name in self.groups and name != "all") or (name == "all" and above):
            raise needs_ansible(f"group {name} stands in two places", self.main)
        if len(above) > MAXIMUM_GROUP_DEPTH:
            raise UserInputError(f"groups are nested more than {MAXIMUM_GROUP_DEPTH} deep", where=where)
        self.check_name(name)
        self.groups[name] = above
        sections = _mapping(body, where)
        if unknown := [section for section in sections if section not in _SECTIONS]:
            raise UserInputError(
                f"unknown section {shown(unknown[0])}", where=where, expected=", ".join(_SECTIONS)
            )
        self.group_variables[name] = _variables(sections.get("vars"), f"{where}.vars")
        for host, inline in _mapping(sections.get("hosts"), f"{where}.hosts").items():
            self.check_name(host)
            self.memberships.setdefault(host, set()).update({*above, name})
            self.hosts.setdefault(host, {}).update(_variables(inline, f"{where}.hosts.{host}"))
        for child, inner in _mapping(sections.get("children"), f"{where}.children").items():
            self.read_group(child, inner, (*above, name))

    def check_name(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise needs_ansible(f"{shown(name)} is a range, has a port in it, or is no plain name", self.main)


def read_yaml_inventory(main: Path) -> dict[str, Listed]:
    """Host → what a main file in YAML and the folders of variables beside it say; raises UserInputError."""
    inventory = _Inventory(main)
    for name, body in _file(main).items():
        inventory.read_group(name, body, () if name == "all" else ("all",))
    if both := sorted({*inventory.hosts} & {*inventory.groups}):
        raise UserInputError(f"{both[0]} is both a host and a group", where=str(main))
    group_files = dict(_files(main.parent / "group_vars", "group", inventory.groups))
    host_files = dict(_files(main.parent / "host_vars", "host", inventory.hosts))
    listed = {}
    for host, inline in inventory.hosts.items():
        groups = sorted(inventory.memberships[host], key=lambda group: (len(inventory.groups[group]), group))
        layers = [inventory.group_variables.get(group, {}) for group in groups]
        layers += [group_files.get(group, {}) for group in groups]
        layers += [inline, host_files.get(host, {})]
        variables = {name: value for layer in layers for name, value in layer.items()}
        listed[host] = Listed(
            variables, tuple(sorted([*groups, "ungrouped"] if groups == ["all"] else groups))
        )
    return listed


def _files(folder: Path, kind: str, known: Container[str]) -> Iterator[tuple[str, Variables]]:
    """(name, variables) of every file in `group_vars` or `host_vars`."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix not in SUFFIXES or path.is_dir():
            if path.name not in known and path.suffix != ".json":
                continue  # Ansible does not read it, either
            raise needs_ansible("is a folder of variables, or no .yaml file", path)
        if path.suffix == ".yml" and path.with_suffix(".yaml").exists():
            raise needs_ansible("is a second file of its name", path)
        if path.stem not in known:
            raise UserInputError(f"the inventory has no {kind} {path.stem!r}", where=str(path))
        yield path.stem, _variables(_file(path), str(path))


def _file(path: Path) -> dict[str, Any]:
    text = read_text(path)
    if text.startswith("$ANSIBLE_VAULT"):
        raise needs_ansible("is encrypted by Ansible Vault", path)
    try:
        data = parse_yaml(text, where=str(path))
    except UserInputError as error:
        if re.search(r"tag '!(vault|unsafe)|merge key", error.what) is None:
            raise
        raise needs_ansible("has a value under !vault or !unsafe, or a merge key", error.where) from None
    if isinstance(data, dict) and "plugin" in data:
        raise needs_ansible("configures a dynamic inventory", path)
    return _mapping(data, str(path))


def _mapping(data: object, where: str) -> dict[str, Any]:
    """`data` as a mapping with text as keys, None as an empty one."""
    if data is not None and not isinstance(data, dict):
        raise UserInputError(f"is a {type(data).__name__}", where=where, expected="a mapping (name: value)")
    for key in data or {}:
        if not isinstance(key, str):
            raise UserInputError(f"the name {shown(key)} is not text", where=where, hint="put it in quotes")
    return data or {}


def _variables(data: object, where: str) -> Variables:
    """Variables as Ansible lists them, which is JSON; a date becomes text."""
    variables = _mapping(data, where)
    if "ansible_group_priority" in variables:
        raise needs_ansible("sets ansible_group_priority", where)
    try:
        plain: Variables = json.loads(json.dumps(variables, default=lambda value: value.isoformat()))
    except (AttributeError, TypeError, ValueError):
        raise needs_ansible("has a value that JSON cannot say", where) from None
    return plain
