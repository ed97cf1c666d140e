"""Reading inventories into devices: by Ansible's own loader where it is installed, else by a small one."""

import re
import stat
from itertools import chain
from pathlib import Path

from mltswitch.documents import MAXIMUM_DOCUMENT_BYTES, named_kind
from mltswitch.errors import UserInputError
from mltswitch.inventory.ansible import ansible_program, read_ansible_inventory
from mltswitch.inventory.device import Device, Inventory, Unusable
from mltswitch.inventory.listing import MAXIMUM_QUOTED_CHARACTERS, Listed, own_documents, own_kind, visible
from mltswitch.inventory.variables import device_from, foreign
from mltswitch.inventory.yaml_files import SUFFIXES, needs_ansible, read_yaml_inventory


def load_inventory(*paths: Path) -> Inventory:
    """All hosts of one or more inventories, as with Ansible's `-i`, in order of their names.

    Raises UserInputError where they cannot be read. What is wrong with one host is kept until that
    host is selected.
    """
    try:
        listed = read_hosts(*paths)
    except OSError as error:
        where = str(error.filename or paths[0])
        raise UserInputError(f"cannot be read: {error.strerror}", where=where) from None
    source = Path(", ".join(map(str, paths)))
    folders = {path if path.is_dir() else path.parent for path in paths}
    folder = folders.pop() if len(folders) == 1 else None
    devices: list[Device] = []
    unusable: dict[str, Unusable] = {}
    for host in sorted(listed, key=lambda name: re.sub(r"\d+", lambda number: number[0].zfill(12), name)):
        variables, groups = listed[host].variables, listed[host].groups
        where = host[:MAXIMUM_QUOTED_CHARACTERS]
        reason, wrong = foreign(variables, where) or ("", None)
        try:
            if wrong is not None:
                raise wrong
            devices.append(device_from(host, listed[host], where, folder))
        except UserInputError as error:
            switch = str(variables.get("mltswitch_switch") or host)
            unusable[host] = Unusable(switch, groups, error, reason)
    return Inventory(tuple(devices), source, tuple(path.absolute() for path in paths), unusable)


def read_hosts(*paths: Path) -> dict[str, Listed]:
    """Hosts with their variables and groups; raises UserInputError, or OSError for a missing path."""
    for path in paths:
        _check_files(path)
    program = ansible_program()
    if program is not None:
        listed = read_ansible_inventory(program, paths)
    elif len(paths) > 1:
        raise needs_ansible("is one of several inventories", paths[1])
    else:
        listed = read_yaml_inventory(_main_file(paths[0]))
    if not listed:
        raise UserInputError("lists no host", where=", ".join(map(str, paths)))
    return listed


def _check_files(path: Path) -> None:
    """Raise UserInputError for what a loader would read for ever, or for half a minute."""
    mode = path.stat().st_mode
    folders = [path] if stat.S_ISDIR(mode) else [path.with_name(f"{kind}_vars") for kind in ("group", "host")]
    for file in (path, *chain.from_iterable(map(visible, folders))):
        state = file.stat()
        if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
            raise UserInputError("is no regular file", where=str(file))
        if state.st_size > MAXIMUM_DOCUMENT_BYTES:
            raise UserInputError(f"larger than {MAXIMUM_DOCUMENT_BYTES} bytes", where=str(file))
    if kind := own_kind(path):
        raise UserInputError(f"is {named_kind(kind)}, no inventory", where=str(path))


def _main_file(path: Path) -> Path:
    files = [path]
    if path.is_dir():
        others = {"group_vars", "host_vars", *(document.name for document in own_documents(path))}
        files = [file for file in sorted(path.iterdir()) if file.name not in others and file.name[0] != "."]
        files = [file for file in files if file.suffix not in {".md", ".txt", ".rst", ".cfg", ".bak"}]
    if len(files) != 1 or files[0].suffix not in SUFFIXES or files[0].is_dir():
        raise needs_ansible("is not one .yaml file, or a folder with one", path)
    return files[0]
