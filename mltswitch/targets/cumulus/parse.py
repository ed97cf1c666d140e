"""Rendered files back into state: nothing but the leaves that this state needs, and both files alike."""

from collections.abc import Mapping

from mltswitch.capabilities import Capabilities
from mltswitch.documents import parse_yaml
from mltswitch.errors import UserInputError
from mltswitch.targets.addresses import ipv4_address, ipv4_network
from mltswitch.targets.base import FileError, LineError
from mltswitch.targets.common import NO_NEXT_HOP
from mltswitch.targets.cumulus.commands import parse_commands
from mltswitch.targets.cumulus.document import DISCARD, leaves_of, port_leaves
from mltswitch.targets.cumulus.interpret import Interpreter, queues_of
from mltswitch.targets.cumulus.leaves import Leaves, Path, Tree, expanded, nest
from mltswitch.targets.cumulus.render import COMMANDS, YAML, yaml_lines, yaml_tree
from mltswitch.targets.state import PortState, RouteState, SwitchState


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Inverse of `write_files`."""
    del capabilities
    leaves: Leaves = {}
    lines: dict[Path, int] = {}
    routes: list[RouteState] = []
    for number, path, value in (
        (number, *leaf) for number, found in parse_commands(files[COMMANDS]) for leaf in found
    ):
        if path in lines:
            raise LineError(number, "", f"{' '.join(path)} is set twice")
        lines[path] = number
        if path[0] != "vrf":
            leaves[path] = value
            continue
        try:
            next_hop = NO_NEXT_HOP if path[6] == DISCARD else ipv4_address(path[6])
            routes.append(RouteState(ipv4_network(path[4]), next_hop, ""))
        except ValueError as error:
            raise LineError(number, "", str(error)) from None
    set_to = (value for path, value in leaves.items() if path[-2:] == ("set", "dscp"))
    background_dscp = int(next(set_to, 0))
    state = SwitchState(_ports(leaves, background_dscp), tuple(routes), background_dscp=background_dscp)
    # Routes have one form only, so what was read of one says it all.
    _compare(leaves, port_leaves(state), lines)
    _check_yaml(files[YAML], state)
    return state


def _ports(leaves: Leaves, background_dscp: int) -> tuple[PortState, ...]:
    config = nest(leaves)
    interpreter = Interpreter(config, background_dscp)
    ports = tuple(
        interpreter.port_state(name, queues_of(config, name)) for name in config.get("interface", {})
    )
    for port in ports:
        if port.unexpected:
            raise LineError(0, "", f"port {port.name}: {port.unexpected[0]}")
    return ports


def _compare(found: Leaves, needed: Mapping[Path, str], lines: Mapping[Path, int]) -> None:
    if found == needed:
        return
    errors = [
        LineError(lines[path], "", f"does not fit the other lines: {' '.join(path)} {value}")
        for path, value in found.items()
        if needed.get(path) != value
    ]
    missing = (path for path in needed if path not in found)
    errors += (LineError(0, "", f"lacks {' '.join(path)} {needed[path]}") for path in missing)
    raise FileError(errors)


def _check_yaml(text: str, state: SwitchState) -> None:
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    # Our own form is compared as it stands; any other is read as YAML, which takes ten times as long.
    if lines != ["- set:", *yaml_lines(state)] and read_yaml(text) != yaml_tree(leaves_of(state)):
        raise UserInputError(f"says something else than {COMMANDS}", where=YAML)


def read_yaml(text: str) -> Tree:
    """The objects that a document for `nv config patch` sets; raises UserInputError."""
    document = parse_yaml(text, where=YAML)
    match document:
        case [{"set": dict() as tree}] if set(document[0]) == {"set"}:
            return expanded(tree)
        case [{"set": None}] if set(document[0]) == {"set"}:
            return {}
        case _:
            raise UserInputError("is no list of one `set`", where=YAML)
