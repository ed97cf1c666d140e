"""Groups, hosts and inline variables of an inventory's main file, with Ansible's precedence."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mltswitch.documents import parse_yaml, read_text
from mltswitch.errors import UserInputError

ALL: Final = "all"
MAXIMUM_GROUP_DEPTH: Final = 32
"""Groups within groups; more is a mistake, if not an attack."""
MAXIMUM_QUOTED_CHARACTERS: Final = 60

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_SECTIONS: Final = ("hosts", "vars", "children")


@dataclass(frozen=True, slots=True)
class Value:
    """One variable's value and the file that it comes from."""

    value: Any
    file: Path


Variables = dict[str, Value]


@dataclass(slots=True)
class Tree:
    """Groups and hosts by name, in the order in which the file first names them."""

    file: Path
    group_variables: dict[str, Variables] = field(default_factory=dict)
    host_variables: dict[str, Variables] = field(default_factory=dict)
    parents: dict[str, set[str]] = field(default_factory=dict)
    """Group → the groups whose child it is."""
    memberships: dict[str, set[str]] = field(default_factory=dict)
    """Host → the groups that list it."""
    depths: dict[str, int] = field(default_factory=dict)
    """Group → steps from `all`, by the longest way."""

    def groups_of(self, host: str) -> tuple[str, ...]:
        """Every group of a host: parents before children, alphabetically where neither is above the other."""
        found: set[str] = {ALL}
        unseen = list(self.memberships[host])
        while unseen:
            group = unseen.pop()
            if group not in found:
                found.add(group)
                unseen += self.parents[group]
        return tuple(sorted(found, key=lambda group: (self.depths[group], group)))


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML mapping with text as keys; an empty file is an empty one. Raises UserInputError."""
    text = read_text(path)
    if text.startswith("$ANSIBLE_VAULT"):
        raise UserInputError(
            "is encrypted by Ansible Vault, which mltswitch does not read",
            where=str(path),
            hint="keep secrets out of the inventory: name an environment variable in mltswitch_password_env",
        )
    try:
        data = parse_yaml(text, where=str(path))
    except UserInputError as error:
        if re.search(r"tag '!(vault|unsafe)'", error.what) is None:
            raise
        raise UserInputError(
            "has a value under an Ansible tag (!vault, !unsafe), which mltswitch does not read",
            where=error.where,
            hint="name an environment variable in mltswitch_password_env for a password",
        ) from None
    return mapping(data, where=str(path))


def mapping(data: object, *, where: str) -> dict[str, Any]:
    """`data` as a mapping with text as keys, None as an empty one; raises UserInputError."""
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserInputError(f"is a {type(data).__name__}", where=where, expected="a mapping (name: value)")
    for key in data:
        if not isinstance(key, str):
            raise UserInputError(f"the name {shown(key)} is not text", where=where, hint="put it in quotes")
    return data


def shown(value: object) -> str:
    """A value as an error message may quote it: short, and never a whole structure."""
    if isinstance(value, str):
        return repr(value[:MAXIMUM_QUOTED_CHARACTERS])
    if isinstance(value, int | float) and abs(value) < 10**12:
        return repr(value)
    return f"a value of type {type(value).__name__}"


def read_tree(path: Path) -> Tree:
    """Groups and hosts of an inventory's main file; raises UserInputError naming file and group."""
    data = read_mapping(path)
    if "plugin" in data:
        raise UserInputError("configures a dynamic inventory, which mltswitch does not run", where=str(path))
    tree = Tree(path, group_variables={ALL: {}}, parents={ALL: set()})
    pending: list[tuple[str, object, tuple[str, ...]]] = [
        (name, body, () if name == ALL else (ALL,)) for name, body in reversed(data.items())
    ]
    seen: set[tuple[str, int]] = set()
    while pending:
        name, body, ancestors = pending.pop()
        _add_group(tree, name, ancestors)
        # A YAML alias may put one body below many groups, even below itself; its content is read once.
        if (name, id(body)) not in seen:
            seen.add((name, id(body)))
            children = _read_group(tree, name, body)
            pending += [(child, inner, (*ancestors, name)) for child, inner in reversed(children.items())]
    for name in sorted(tree.host_variables.keys() & tree.group_variables.keys()):
        raise UserInputError(f"{name} is both a host and a group", where=str(path))
    tree.depths = _depths(tree)
    return tree


def _add_group(tree: Tree, name: str, ancestors: tuple[str, ...]) -> None:
    _check_name(name, "group", tree.file)
    if name in ancestors or (name == ALL and ancestors):
        raise UserInputError(f"group {name} stands below itself", where=str(tree.file))
    if len(ancestors) >= MAXIMUM_GROUP_DEPTH:
        raise UserInputError(f"groups are nested more than {MAXIMUM_GROUP_DEPTH} deep", where=str(tree.file))
    tree.group_variables.setdefault(name, {})
    tree.parents.setdefault(name, set()).update(ancestors[-1:])


def _read_group(tree: Tree, name: str, body: object) -> dict[str, Any]:
    """Take over hosts and variables of one group; returns its children."""
    where = f"{tree.file}: {name}"
    sections = mapping(body, where=where)
    for section in sections:
        if section not in _SECTIONS:
            raise UserInputError(
                f"unknown section {shown(section)}", where=where, expected=f"one of {', '.join(_SECTIONS)}"
            )
    tree.group_variables[name] |= _values(sections.get("vars"), f"{where}.vars", tree.file)
    for host, variables in mapping(sections.get("hosts"), where=f"{where}.hosts").items():
        _check_name(host, "host", tree.file)
        tree.memberships.setdefault(host, set()).add(name)
        values = _values(variables, f"{where}.hosts.{host}", tree.file)
        tree.host_variables[host] = tree.host_variables.get(host, {}) | values
    return mapping(sections.get("children"), where=f"{where}.children")


def _values(data: object, where: str, file: Path) -> Variables:
    return {name: Value(value, file) for name, value in mapping(data, where=where).items()}


def _check_name(name: str, kind: str, file: Path) -> None:
    if _NAME.fullmatch(name) is None:
        hint = "list every host by its name: ranges are not expanded" if "[" in name else ""
        raise UserInputError(
            f"{shown(name)} is no {kind} name",
            where=str(file),
            expected="letters, digits, '_', '.' and '-', at most 63, a letter or digit first",
            hint=hint,
        )


def _depths(tree: Tree) -> dict[str, int]:
    """Longest way from `all`, by relaxing as often as a way may be long; a longer one is a circle."""
    depths = dict.fromkeys(tree.parents, 0)
    for _ in range(MAXIMUM_GROUP_DEPTH + 1):
        following = {
            name: 1 + max(depths[parent] for parent in parents) if parents else 0
            for name, parents in tree.parents.items()
        }
        if following == depths:
            return depths
        depths = following
    raise UserInputError(
        f"groups stand below themselves, or are nested more than {MAXIMUM_GROUP_DEPTH} deep",
        where=str(tree.file),
    )


def layered(
    tree: Tree, host: str, group_files: Mapping[str, Variables], host_files: Mapping[str, Variables]
) -> Variables:
    """A host's variables, later ones winning: Ansible's documented order, without playbooks and facts."""
    groups = tree.groups_of(host)
    layers: list[Mapping[str, Value]] = [tree.group_variables[group] for group in groups]
    layers += [group_files.get(group, {}) for group in groups]
    layers += [tree.host_variables[host], host_files.get(host, {})]
    return {name: value for layer in layers for name, value in layer.items()}


def folder_variables(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of every variables file in `group_vars` or `host_vars`; raises UserInputError."""
    if not folder.is_dir():
        return
    seen: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            raise UserInputError(
                "is a folder, which mltswitch does not read here",
                where=str(path),
                hint=f"put its variables into {path.name}.yaml",
            )
        if path.suffix not in {".yaml", ".yml"}:
            continue
        if path.stem in seen:
            raise UserInputError(f"{seen[path.stem].name} stands beside it", where=str(path))
        seen[path.stem] = path
        yield path.stem, path
