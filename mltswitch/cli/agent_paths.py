"""`mltswitch agent paths`: the paths between two hosts of a plan, and what the hosts need for them."""

from pathlib import Path as FilePath
from typing import Any, Final

import click
from click.core import ParameterSource

from mltswitch.cli.agent_options import option_name
from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.errors import UserInputError
from mltswitch.hostagent.spraying import FIRST_SOURCE_PORT, LARGEST_FIRST_SOURCE_PORT, MOST_PATHS, Spraying
from mltswitch.hostagent.spraying.paths import Path, SegmentList, SourcePort, paths_between, setup_commands
from mltswitch.plan import load_plan
from mltswitch.wire import SourceRoute

OF_ONE_MODE: Final = {"sticky": "srv6", "source_ports": "entropy", "first_source_port": "entropy"}
"""Option → the mode in which it means something."""
COLUMNS: Final = ("path #", "by way of", "from", "to", "named by")


@click.command(
    epilog="\b\nExamples:\n  mltswitch agent paths --plan plan.yaml --from host1 --to host3\n"
    "  mltswitch agent paths --plan plan.yaml --from host1 --to host3 --setup\n"
    "  mltswitch agent paths --plan plan.yaml --from host1 --to host3 --json"
)
@click.option("--plan", "plan_file", required=True, type=click.Path(path_type=FilePath), metavar="PLAN")
@click.option("--from", "source", required=True, metavar="HOST", help="The sender's name in the fabric.")
@click.option("--to", "destination", required=True, metavar="HOST", help="The receiver.")
@click.option("--setup", is_flag=True, help="Print what root does once on both hosts.")
@click.option("--sticky", is_flag=True, help="srv6: a header for each socket, no route for each address.")
@click.option(
    "--source-ports",
    type=click.IntRange(1, MOST_PATHS),
    help="entropy: how many UDP source ports; by default 16, or 4 for each spine.",
)
@click.option(
    "--first-source-port",
    type=click.IntRange(1, LARGEST_FIRST_SOURCE_PORT),
    default=FIRST_SOURCE_PORT,
    show_default=True,
    help="entropy: the first of them.",
)
@json_option
def paths(
    plan_file: FilePath, source: str, destination: str, setup: bool, as_json: bool, **of_one_mode: Any
) -> None:
    """Print the paths from one host to another. The plan's spray mode names them."""
    plan = load_plan(plan_file)
    given = click.get_current_context().get_parameter_source
    for parameter, mode in OF_ONE_MODE.items():
        if given(parameter) is ParameterSource.COMMANDLINE and plan.paths.mode != mode:
            what, expected = f"is of the spray mode {mode}", f"nothing: the plan's is {plan.paths.mode}"
            raise UserInputError(what, where=option_name(parameter), expected=expected)
    options = Spraying(**of_one_mode)
    found = paths_between(plan, source, destination, options)
    ends = ((source, destination), (destination, source))
    commands = {host: setup_commands(plan, host, peer, options) for host, peer in ends}
    if as_json:
        names = ("number", "name", "source", "destination")
        shown = [{name: getattr(path, name) for name in names} | _way(path)[1] for path in found]
        data = {"mode": plan.paths.mode, "from": source, "to": destination, "paths": shown}
        print_json(data | ({"setup": commands} if setup else {}))
    elif setup:
        for host, lines in commands.items():
            click.echo("\n".join((f"# on {host}, once, from root:", *lines)))
    else:
        rows = [(path.number, path.name, path.source, path.destination, _way(path)[0]) for path in found]
        console().print(table(f"{source} to {destination}: {plan.paths.mode}", COLUMNS, rows))


def _way(path: Path) -> tuple[str, dict[str, object]]:
    """What names a path on the wire, for people and for programs."""
    match path.way:
        case SegmentList(segments, is_sticky):
            whose = "header of the socket" if is_sticky else "route of the host"
            text = f"segments {', '.join(map(str, segments))} ({whose})"
            return text, {"segments": segments, "is_sticky": is_sticky}
        case SourceRoute(ports):
            return f"egress ports {', '.join(map(str, ports))}", {"egress_ports": ports}
        case SourcePort(port):
            return f"UDP source port {port}", {"source_port": port}
    return "destination address", {}
