"""What both inventory loaders return: hosts with variables and groups, not yet checked."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

MAXIMUM_QUOTED_CHARACTERS: Final = 60

YAML_SUFFIXES: Final = (".yaml", ".yml", ".json")
RENDERED: Final = frozenset({"mltswitch.json", "mltswitch.txt", "mltswitch.yaml", "qdiscs.tc", "routes.ip"})
"""Names of the files that `render` writes into a device's folder."""
_GROUP_KEY: Final = re.compile(rb"\b(?:hosts|children|vars)[\"']?[ \t]*:")
"""Of a group of an inventory, which no rendered file has."""
_OWN_DOCUMENT: Final = re.compile(r'^\s*+\{?\s*+"?schema"?\s*:\s*"?mltswitch/([a-z-]+)', re.MULTILINE)

Variables = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Listed:
    """One host: its variables, each with the value of highest precedence, and its groups, sorted."""

    variables: Variables
    groups: tuple[str, ...]


def shown(value: object) -> str:
    """A value as an error message may quote it: short, and never a whole structure."""
    if isinstance(value, str):
        return repr(value[:MAXIMUM_QUOTED_CHARACTERS])
    if isinstance(value, int | float) and abs(value) < 10**12:
        return repr(value)
    return f"a value of type {type(value).__name__}"


def visible(folder: Path) -> Iterator[Path]:
    """The entries below a folder that Ansible would read; hidden ones, such as a running lab's, are not."""
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if not entry.name.startswith(".") and entry.exists():
            yield entry
            if not entry.is_symlink():
                yield from visible(entry)


def own_kind(file: Path) -> str:
    """Kind of the mltswitch document that a file is, such as `plan` or `fabric`; empty where it is none."""
    is_yaml = file.suffix in YAML_SUFFIXES and file.is_file()
    found = is_yaml and _OWN_DOCUMENT.search(file.read_bytes()[:4096].decode("utf-8", "replace"))
    return found[1] if found else ""


def own_documents(folder: Path) -> set[Path]:
    """mltswitch's own files in a folder that Ansible would take for inventories: fabric, plan, rendered ones.

    Folders that hold nothing else are included. Ansible skips entries by their names alone, so a name that an
    inventory has as well is never skipped.
    """
    below = [*visible(folder)]
    files = [file for file in below if not file.is_dir()]
    own = {file for file in files if file.parent != folder and _is_rendered(file)}
    mixed = {parent for file in files if file not in own for parent in file.parents}
    own |= {parent for file in own for parent in file.parents} & {*below} - mixed
    read = {each.name for each in below if each not in own}
    return {*filter(own_kind, folder.iterdir()), *(each for each in own if each.name not in read)}


def _is_rendered(file: Path) -> bool:
    return file.name in RENDERED and file.is_file() and not _GROUP_KEY.search(file.read_bytes())


def file_of(host: str, groups: Iterable[str], variable: str, paths: Sequence[Path]) -> str:
    """The file that sets a variable of a host (empty: the host itself), as far as texts show; else empty.

    Ansible names no file. They are searched by precedence: host_vars, the inventory's host entry, its
    groups'.
    """
    folders = [path if path.is_dir() else path.parent for path in paths]
    inside = [*chain.from_iterable(_files(folder / "host_vars", [host]) for folder in folders)]
    main = [file for file in chain(paths, *map(visible, paths)) if file.is_file() and not own_kind(file)]
    beside = [*chain.from_iterable(_files(folder / "group_vars", groups) for folder in folders)]
    name, variable = rf"(?<![\w.-]){re.escape(host)}(?![\w.-])", re.escape(variable)
    # Behind the first place of the name on a line: from each of many, a long line would be read again.
    inline = rf"(?m)^(?>.*?{name}).*\b{variable}\b" if variable else name
    for files, pattern in ((inside, variable), (main, inline), (beside, variable), (main, name)):
        for file in files if pattern else ():
            with suppress(OSError, UnicodeDecodeError):
                if re.search(pattern, file.read_text(encoding="utf-8")):
                    return str(file)
    return ""


def _files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Files of variables of these hosts or groups, as Ansible finds them in `host_vars` or `group_vars`."""
    wanted = set(names)
    for entry in sorted(visible(folder)):
        if entry.name in wanted or entry.stem in wanted:
            yield from (entry,) if entry.is_file() else filter(Path.is_file, sorted(entry.rglob("*")))
