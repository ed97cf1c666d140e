"""What the commands that open an agent share: options, the configuration file, and who the peers are."""

import re
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click
from click.core import ParameterSource

from mltswitch.cli.numbers import NumberRange
from mltswitch.cli.output import last_words, progress
from mltswitch.documents import read_text
from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.hostagent.agent import DEFAULT_DEADLINE_SECONDS, Agent
from mltswitch.hostagent.configuration import (
    AgentConfiguration,
    AgentDocument,
    checked_document,
    configured,
    parse_endpoint,
    read_document,
)
from mltswitch.hostagent.configuration.document import idle_fields
from mltswitch.hostagent.control.identity import host_name_problem
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.spraying.settings import Policy
from mltswitch.hostagent.telemetry.server import MetricsServer
from mltswitch.hostagent.telemetry.trace import TraceWriter
from mltswitch.hostagent.transport.settings import Transport

COMMAND_LINE: Final = "command line"
SIGNAL_EXIT_CODE: Final = 128
"""And the signal's number, as shells have it."""
DEFAULT_WAIT_SECONDS: Final = 60.0
IDLE_OVER_TCP: Final = (
    "spray",
    "line_rate",
    "mtu_bytes",
    "policy",
    "burst_packets",
    "loss_bound",
    "important_loss_bound",
    "keep_missing",
)
"""Parameters of commands that mean nothing there: TCP paces, cuts and finds its rate itself, and everything
arrives."""

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "-c",
        "--config",
        "config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="This host's agent; options go before it. Without, over loopback.",
    ),
    click.option("--name", metavar="HOST", help="Of this host; by default as its certificate says."),
    click.option("--plan", type=click.Path(path_type=Path), help="Take paths, rates and classes from it."),
    click.option("--keys", type=click.Path(path_type=Path), metavar="FOLDER", help="This host's keys."),
    click.option(
        "--plaintext",
        is_flag=True,
        help="No keys, and yet beyond loopback: a laboratory of your own. Needs a plan, or a file (-c) with "
        "line_rate and classes; a sender without a plan also --address.",
    ),
    click.option("--address", "addresses", multiple=True, metavar="IP", help="Of the data, one a path."),
    click.option("--mtu", "mtu_bytes", type=int, metavar="BYTES", help="Longest packet of the way."),
    click.option("--line-rate", metavar="RATE", help="Of this host's link, without a plan: 25Gbps, say."),
    click.option("--authenticate", is_flag=True, help="A tag on every datagram, to and from here."),
    click.option(
        "--spray",
        type=click.Choice([policy.value for policy in Policy]),
        help="How bursts are divided among paths.",
    ),
    click.option(
        "--transport",
        type=click.Choice([transport.value for transport in Transport]),
        help="How tensors cross; both ends say the same. By default mlt.",
    ),
    click.option(
        "--wait",
        "wait_seconds",
        type=NumberRange(0, 1e6, min_open=True),
        default=DEFAULT_WAIT_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="For peers to be there.",
    ),
    click.option(
        "--deadline",
        "deadline_seconds",
        type=NumberRange(0, 1e6, min_open=True),
        default=DEFAULT_DEADLINE_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="Of each round.",
    ),
    click.option(
        "--metrics",
        metavar="ADDRESS:PORT",
        help="Serve Prometheus there while it runs.",
    ),
    click.option(
        "--open-metrics",
        is_flag=True,
        help="Let --metrics be beyond loopback: whoever reaches the address may read.",
    ),
    click.option(
        "--trace", type=click.Path(path_type=Path), metavar="FILE", help="Write what happens there."
    ),
)


def agent_options(command: Command) -> Command:
    """Of every command that opens an agent."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def document_of(
    config: Path | None,
    *,
    name: str | None,
    plan: Path | None,
    keys: Path | None,
    plaintext: bool,
    addresses: Sequence[str],
    mtu_bytes: int | None,
    line_rate: str | None = None,
    authenticate: bool = False,
    spray: str | None = None,
    transport: str | None = None,
    **more: Any,
) -> AgentDocument:
    """What file and options say together; raises UserInputError naming the file and field, or the option."""
    document = AgentDocument() if config is None else read_document(config)
    data = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if transport is not None:  # the file was written for the other one, to compare with
        for field in idle_fields(document, Transport(transport)):
            del data[field]
    folder = config.parent if config is not None else Path()
    for field in ("plan", "keys"):
        if field in data:
            data[field] = str(folder / data[field])
    if "profile" in data and (folder / data["profile"]).is_file():
        data["profile"] = str((folder / data["profile"]).absolute())
    given = {
        "name": name,
        "plan": str(plan) if plan else None,
        "keys": str(keys) if keys else None,
        "plaintext": plaintext or None,
        "addresses": list(addresses) or None,
        "mtu_bytes": mtu_bytes,
        "line_rate": line_rate,
        "authenticate": authenticate or None,
        "transport": transport,
        **more,
    }
    data |= {field: value for field, value in given.items() if value is not None}
    # Over TCP it changes nothing, and is told of.
    if spray is not None and data.get("transport") != Transport.TCP:
        data["spraying"] = {**data.get("spraying", {}), "policy": spray}
    where = COMMAND_LINE if config is None else f"{config} and options"
    with _naming_options_of(where, {field for field, value in given.items() if value is not None}):
        return checked_document(data, where=where)


def configuration_of(document: AgentDocument, config: Path | None, default_name: str) -> AgentConfiguration:
    """Raises UserInputError or UnsupportedPlanError."""
    where = COMMAND_LINE if config is None else str(config)
    read = None if config is None else partial(read_text, config)
    with _naming_options_of(where, document.model_fields_set if config is None else _given_options()):
        return configured(document, folder=Path(), where=where, default_name=default_name, read=read)


@contextmanager
def naming_options(options: Mapping[str, str]) -> Iterator[None]:
    """Errors of the library name the place of a value; here that is an option."""
    try:
        yield
    except UserInputError as error:
        error.where = options.get(error.where, error.where)
        raise


@contextmanager
def _naming_options_of(where: str, given: Collection[str]) -> Iterator[None]:
    """The same for fields of a document that options gave."""
    try:
        yield
    except UserInputError as error:
        place = error.where.removeprefix(where)
        field = re.sub(r"^(:\d+)?: ", "", place).partition(".")[0]
        context = click.get_current_context(silent=True)  # None: no command runs
        if field in given and context and field in {entry.name for entry in context.command.params}:
            error.where = _option(field)
        raise


def _given_options() -> set[str]:
    context = click.get_current_context(silent=True)
    names = {entry.name for entry in context.command.params} if context else set()
    return {name for name in names if name is not None and is_given(name)}


def is_given(parameter: str) -> bool:
    """Whether the command line of the command that runs says it; else it has its default."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def require_together(parameter: str, others: Sequence[str]) -> None:
    """Raises UserInputError where an option is given, and none of those without which it means nothing."""
    if is_given(parameter) and not any(map(is_given, others)):
        raise UserInputError(
            f"means nothing without {' or '.join(map(_option, others))}", where=_option(parameter)
        )


def tell_idle_options(settings: AgentSettings) -> None:
    """On standard error: what was asked for and the transport does not look at."""
    if settings.transport is Transport.TCP:
        known = {parameter.name for parameter in click.get_current_context().command.params}
        idle = [_option(name) for name in IDLE_OVER_TCP if name in known and is_given(name)]
        if idle:
            progress(f"note: over tcp {', '.join(idle)} {'change' if idle[1:] else 'changes'} nothing")


def _option(parameter: str) -> str:
    """As users write it."""
    options = {entry.name: entry.opts for entry in click.get_current_context().command.params}
    return max(options[parameter], key=len)


@contextmanager
def running(
    settings: AgentSettings, metrics: str | None, trace: Path | None, *, open_metrics: bool
) -> Iterator[Agent]:
    """An agent with its trace and metrics, and what it says of this machine on standard error."""
    require_together("open_metrics", ["metrics"])
    tell_idle_options(settings)
    endpoint = None if metrics is None else _metrics_endpoint(metrics)
    with ExitStack() as stack:
        if trace is not None:
            writer = stack.enter_context(TraceWriter(trace))
            settings = replace(settings, observers=(*settings.observers, writer))
        agent = stack.enter_context(Agent(settings))
        if endpoint is not None:
            server = stack.enter_context(MetricsServer(agent, endpoint, beyond_loopback=open_metrics))
            progress(f"metrics at http://{server.listening_at}/metrics")
        for text in agent.warnings:
            progress(f"warning: {text}")
        stack.enter_context(_closing_with_the_reason(agent))
        yield agent


@contextmanager
def _closing_with_the_reason(agent: Agent) -> Iterator[None]:
    """Where this end stops early, peers are told why: else all they have to say is that it has gone."""
    try:
        yield
    except BaseException as error:
        agent.close(reason_of(error))
        raise


def reason_of(error: BaseException) -> str:
    """Why a run has ended early, for others: names of this host's files are not among it."""
    if isinstance(error, AgentError):
        return str(error)
    if isinstance(error, MltswitchError):
        return f"{error.what} (expected {error.expected})" if error.expected else error.what
    if isinstance(error, SystemExit):
        return "it was told to end"
    return "it was interrupted" if isinstance(error, KeyboardInterrupt) else "it failed"


def _metrics_endpoint(text: str) -> Endpoint:
    try:
        return parse_endpoint(text, default_port=0)
    except ValueError as error:
        raise UserInputError(str(error), where="--metrics") from None


@contextmanager
def orderly_end() -> Iterator[None]:
    """A request to end (SIGTERM) ends as an error does: peers are told, no part of a file stays, and the last
    line says why."""

    was_told = False

    def end(number: int, _frame: object) -> NoReturn:
        nonlocal was_told
        was_told = True
        sys.exit(SIGNAL_EXIT_CODE + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except SystemExit:
        if was_told:
            last_words("mltswitch: told to end (SIGTERM)")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def checked_peer(name: str) -> str:
    """A name that may become part of a file's; raises UserInputError."""
    problem = host_name_problem(name)
    if problem:
        raise UserInputError(problem, where=f"peer {name[:60]}")
    return name


def peers_of(configuration: AgentConfiguration, texts: Sequence[str]) -> list[tuple[str, Endpoint]]:
    """Of options `NAME`, `NAME=ADDRESS:PORT` or `NAME=HOST:PORT`; raises UserInputError."""
    found: dict[str, Endpoint] = {}
    for text in texts:
        name, separator, place = text.partition("=")
        if checked_peer(name) in found:
            raise UserInputError("is named twice", where=f"peer {name}")
        found[name] = (
            configuration.endpoint(place, where=f"peer {name}") if separator else configuration.peer(name)
        )
    return list(found.items())
