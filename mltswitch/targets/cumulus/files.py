"""A state in the language of NVUE, as a file of commands and the same objects in YAML; and both read back."""

from collections.abc import Mapping
from itertools import groupby
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UserInputError
from mltswitch.targets.base import LineError
from mltswitch.targets.common import each_line
from mltswitch.targets.cumulus.leaves import DISCARD, leaves_in, leaves_of, section, set_commands
from mltswitch.targets.cumulus.read import read_ports, read_routes
from mltswitch.targets.engine.tree import Leaves, Tree, at, check_leaves, nest, numbered, yaml_lines
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import SwitchState

COMMANDS: Final = "mltswitch.txt"
YAML: Final = "mltswitch.yaml"
_ABOUT: Final = {
    COMMANDS: (
        "# NVUE commands; mltswitch.yaml says the same for `nv config patch`.",
        "# Look at them with `nv config diff`, then `nv config apply` and `nv config save`.",
    ),
    YAML: (
        "# NVUE objects for `nv config patch`, never for `nv config replace`: that would remove all others.",
    ),
}


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """The rendered files by name: `mltswitch.txt` with commands, and `mltswitch.yaml`."""
    del capabilities
    leaves, commands = leaves_of(state), list[str]()
    for title, lines in groupby(set_commands(leaves), section):
        commands += ["", f"# {title}", *lines]
    texts = {COMMANDS: commands, YAML: _yaml(leaves)}
    return {name: "\n".join((*_ABOUT[name], *lines, "")) for name, lines in texts.items()}


@remembering_last
def _yaml(needed: Leaves) -> list[str]:
    """All leaves with what `nv set` adds by itself: the types of interfaces and next hops."""
    leaves = dict(needed)
    for path in needed:
        if path[0] == "interface":
            leaves[*path[:2], "type"] = "swp"
        elif path[0] == "vrf":
            leaves[*path, "type"] = DISCARD if path[-1] == DISCARD else "ipv4-address"
    return ["- set:", *yaml_lines(nest(leaves.items()), "    ")]


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Read the files of `write_files` back as a state."""
    del capabilities
    leaves, numbers = numbered(each_line(files[COMMANDS], leaves_in))
    background_dscp = int(next((value for path, value in leaves.items() if path[-2:] == ("set", "dscp")), 0))
    config = nest(leaves.items())
    queues = {name: _queues_of(config, name) for name in at(config, "interface")}
    ports = tuple(read_ports(config, queues, background_dscp))
    for port in ports:
        if port.unexpected:
            raise LineError(0, "", f"port {port.name}: {port.unexpected[0]}")
    state = SwitchState(ports, tuple(read_routes(config)), background_dscp=background_dscp)
    needed = leaves_of(state)
    check_leaves(leaves, needed, numbers)
    if [line for line in files[YAML].split("\n") if line and not line.startswith("#")] != _yaml(needed):
        raise UserInputError(
            f"is not in the form that mltswitch writes, or says something else than {COMMANDS}", where=YAML
        )
    return state


def _queues_of(config: Tree, port: str) -> tuple[int, ...]:
    """Traffic classes that a port's own congestion profile names, served first first."""
    profile = at(config, "interface", port, "qos", "congestion-control").get("profile", "")
    classes = at(config, "qos", "congestion-control", profile, "traffic-class")
    return tuple(sorted(map(int, classes), reverse=True))
