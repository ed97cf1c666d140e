"""Reading an inventory folder into devices.

The subset of Ansible's YAML inventories that a rack of switches needs:

- `hosts.yaml` (or `hosts.yml`) with groups of `hosts`, `vars` and `children`;
- beside it `group_vars/<group>.yaml` and `host_vars/<host>.yaml`;
- precedence as documented by Ansible ("Understanding variable precedence"): inline group variables, parents
  before children, then `group_vars` in the same order, then inline host variables, then `host_vars`. A later
  value replaces an earlier one as a whole. Groups of equal depth go in alphabetical order;
- a variable that mltswitch does not use may hold anything; those that it uses are listed in `variables.py`.

Refused with one line: INI and dynamic inventories, vault values, Jinja expressions in variables that we use,
host ranges, folders of variable files, and a variables file whose group or host does not exist (Ansible
ignores it; here it is most likely a slip in its name).
"""

from collections.abc import Container
from pathlib import Path
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.inventory.device import Inventory
from mltswitch.inventory.tree import Value, Variables, folder_variables, layered, read_mapping, read_tree
from mltswitch.inventory.variables import device_from

MAIN_FILES: Final = ("hosts.yaml", "hosts.yml")


def load_inventory(path: Path) -> Inventory:
    """All devices of an inventory folder, or of the folder of a main file; raises UserInputError."""
    try:
        return _load(path, _main_file(path))
    except OSError as error:
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(path)) from None


def _load(path: Path, main: Path) -> Inventory:
    tree = read_tree(main)
    folder = main.parent
    group_files = _read_folder(folder / "group_vars", "group", tree.group_variables.keys())
    host_files = _read_folder(folder / "host_vars", "host", tree.host_variables.keys())
    if not tree.host_variables:
        raise UserInputError("lists no host", where=str(main))
    devices = tuple(
        device_from(host, layered(tree, host, group_files, host_files), tree.groups_of(host), main)
        for host in tree.host_variables
    )
    return Inventory(devices, path)


def _main_file(path: Path) -> Path:
    if not path.is_dir():
        if path.exists() and path.suffix not in {".yaml", ".yml"}:
            raise UserInputError(
                "is no YAML inventory: INI files and inventory programs are not read",
                where=str(path),
                expected="a folder with hosts.yaml, or a .yaml file",
            )
        return path
    found = [path / name for name in MAIN_FILES if (path / name).exists()]
    if len(found) != 1:
        problem = "has no hosts.yaml" if not found else "has both hosts.yaml and hosts.yml"
        hint = "an INI inventory is not read; `ansible-inventory --list --yaml` converts it"
        raise UserInputError(problem, where=str(path), hint=hint if (path / "hosts").exists() else "")
    return found[0]


def _read_folder(folder: Path, kind: str, known: Container[str]) -> dict[str, Variables]:
    read: dict[str, Variables] = {}
    for name, file in folder_variables(folder):
        if name not in known:
            raise UserInputError(f"the inventory has no {kind} {name!r}", where=str(file))
        read[name] = {key: Value(value, file) for key, value in read_mapping(file).items()}
    return read
