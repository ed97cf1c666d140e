"""Rendered files back into state: nothing but the leaves that this state needs, and both files alike."""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network

from mltswitch.documents import parse_yaml
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets.cumulus.commands import CommandError, parse_commands
from mltswitch.targets.cumulus.document import leaves_of
from mltswitch.targets.cumulus.interpret import Interpreter, queues_of
from mltswitch.targets.cumulus.leaves import Leaves, Tree, expanded, nest
from mltswitch.targets.cumulus.render import COMMANDS, YAML, yaml_lines, yaml_tree
from mltswitch.targets.state import RouteState, SwitchState


def parse_files(files: Mapping[str, str]) -> SwitchState:
    """Inverse of `render`; raises UserInputError naming the file, and the line or the object."""
    if set(files) != {COMMANDS, YAML}:
        raise UserInputError(
            f"the files are {', '.join(sorted(files)) or 'none'}", expected=f"{COMMANDS} and {YAML}"
        )
    leaves: Leaves = {}
    lines: dict[tuple[str, ...], int] = {}
    routes: list[RouteState] = []
    try:
        for number, port, path, value in parse_commands(files[COMMANDS]):
            if path in leaves:
                raise UserInputError(f"{' '.join(path)} is set twice", where=f"{COMMANDS}:{number}")
            leaves[path], lines[path] = value, number
            if path[0] == "vrf":
                routes.append(_route(path[4], path[6], port, number))
    except CommandError as error:
        raise UserInputError(str(error), where=f"{COMMANDS}:{error.number}") from None
    state = _state(leaves, routes)
    needed = _needed(state)
    _compare(leaves, needed, lines)
    _check_yaml(files[YAML], needed)
    return state


def _route(prefix: str, hop: str, port: str, number: int) -> RouteState:
    try:
        return RouteState(IPv4Network(prefix), IPv4Address(hop), port)
    except ValueError as error:
        raise UserInputError(str(error), where=f"{COMMANDS}:{number}") from None


def _state(leaves: Leaves, routes: list[RouteState]) -> SwitchState:
    config = nest(leaves)
    interpreter = Interpreter(config)
    ports = tuple(
        interpreter.port_state(name, queues_of(config, name)) for name in config.get("interface", {})
    )
    for port in ports:
        if port.unexpected:
            raise UserInputError(f"{port.unexpected[0]}", where=f"{COMMANDS}: port {port.name}")
    return SwitchState(ports, tuple(routes))


def _needed(state: SwitchState) -> Leaves:
    try:
        return leaves_of(state)
    except UnsupportedPlanError as error:
        raise UserInputError(
            error.what, where=f"{COMMANDS}: {error.where}", expected=error.expected
        ) from None


def _compare(found: Leaves, needed: Leaves, lines: Mapping[tuple[str, ...], int]) -> None:
    for path, value in found.items():
        if needed.get(path) != value:
            raise UserInputError(
                f"does not fit the other lines: {' '.join(path)} {value}", where=f"{COMMANDS}:{lines[path]}"
            )
    for path, value in needed.items():
        if path not in found:
            raise UserInputError(f"lacks {' '.join(path)} {value}", where=COMMANDS)


def _check_yaml(text: str, leaves: Leaves) -> None:
    tree = yaml_tree(leaves)
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    # Our own form is compared as it stands; any other is read as YAML, which takes ten times as long.
    if lines != ["- set:", *yaml_lines(tree)] and read_yaml(text) != tree:
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
