"""What the commands that open an agent share: options, settings, and how a run ends."""

import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from click.core import ParameterSource

from mltswitch.cli.numbers import NumberRange
from mltswitch.cli.output import json_option, last_words, progress
from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.hostagent import Agent, AgentConfig, AgentError, TraceWriter, serve_metrics
from mltswitch.hostagent.endpoint import Endpoint, parse_endpoint
from mltswitch.hostagent.transport.description import transports

SIGNAL_EXIT_CODE: Final = 128
"""And the signal's number, as shells have it."""
_FILE: Final = click.Path(path_type=Path)
_SECONDS: Final[dict[str, Any]] = {"type": NumberRange(0, 1e6, min_open=True), "metavar": "SECONDS"}
_FIELDS: Final = {*AgentConfig.model_fields, "line_rate"}
_CONFIG_OPTIONS: Final = (
    click.option("-c", "--config", type=_FILE, metavar="FILE", help="This host's agent; options precede it."),
    click.option("--name", metavar="HOST", help="Of this host; by default as its certificate says."),
    click.option("--plan", type=_FILE, help="Take paths, rates and classes from it."),
    click.option("--keys", type=_FILE, metavar="FOLDER", help="This host's keys."),
    click.option("--plaintext", is_flag=True, help="No keys, yet beyond loopback: in your own laboratory."),
    click.option("--address", "addresses", multiple=True, metavar="IP", help="Of the data, one a path."),
    click.option("--mtu", "mtu_bytes", type=int, metavar="BYTES", help="Longest packet of the way."),
)  # fmt: skip
_RUN_OPTIONS: Final = (
    click.option("--line-rate", metavar="RATE", help="Of this host's link, without a plan: 25Gbps, say."),
    click.option("--transport", type=click.Choice(list(transports())), help="Alike at both ends."),
    click.option("--wait", "wait_seconds", default=60.0, **_SECONDS, help="For peers; by default 60."),
    click.option("--deadline", "deadline_seconds", **_SECONDS, help="Of each round; by default 60."),
    click.option("--metrics", metavar="ADDRESS:PORT", help="Serve Prometheus there while it runs."),
    click.option("--open-metrics", is_flag=True, help="Let --metrics be beyond loopback: anybody may read."),
    click.option("--trace", type=_FILE, metavar="FILE", help="Write what happens there."),
    json_option,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What every command that opens an agent is told."""

    config: Path | None
    wait_seconds: float
    deadline_seconds: float | None
    metrics: str | None
    open_metrics: bool
    trace: Path | None
    as_json: bool
    fields: dict[str, Any]
    """Of AgentConfig, by options."""

    def settings(self, default_name: str) -> AgentConfig:
        """What file and options say together; raises UserInputError naming the field or the option."""
        given: dict[str, Any] = {
            field: list(value) if isinstance(value, tuple) else value
            for field, value in self.fields.items()
            if value is not None and value is not False and value != ()
        }
        for field in {"plan", "keys"} & set(given):  # from this folder, not from the file's
            given[field] = str(given[field].absolute())
        with naming_options({field: option_name(field) for field in given}):
            return AgentConfig.load(self.config, given, default_name=default_name)


def agent_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Of every command that opens an agent, which is given them, and fields of settings, as `run`."""

    @wraps(command)
    def with_run(**options: Any) -> None:
        given = {name: options.pop(name) for name in _FIELDS & set(options)}
        shared = {entry.name: options.pop(entry.name) for entry in fields(RunOptions)[:-1]}
        command(run=RunOptions(**shared, fields=given), **options)

    for option in reversed(_RUN_OPTIONS):
        with_run = option(with_run)
    return config_options(with_run)


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The ones that say which agent this is."""
    for option in reversed(_CONFIG_OPTIONS):
        command = option(command)
    return command


@contextmanager
def naming_options(options: Mapping[str, str]) -> Iterator[None]:
    """Errors of the library name the place of a value; here that is an option."""
    try:
        yield
    except UserInputError as error:
        field = re.split(r"[.\[]", error.where.rpartition(": ")[2])[0]
        error.where = options.get(field, error.where)
        raise


def option_name(parameter: str) -> str:
    """As users write it."""
    options = {entry.name: entry.opts for entry in click.get_current_context().command.params}
    return max(options[parameter], key=len)


def require_together(parameter: str, other: str) -> None:
    """Raises UserInputError where an option is given, and not the one without which it means nothing."""
    source = click.get_current_context().get_parameter_source
    if source(parameter) is ParameterSource.COMMANDLINE != source(other):
        raise UserInputError(f"means nothing without {option_name(other)}", where=option_name(parameter))


def require_way_out(settings: AgentConfig, peer: str, there: Endpoint) -> None:
    """Raises UserInputError where a peer is elsewhere, and our data's address is of loopback."""
    ours = settings.addresses[0]
    if settings.plaintext and Endpoint(ours, 0).ip.is_loopback and not there.ip.is_loopback:
        what = f"data from {ours} does not leave this machine, and {peer} is at {there}"
        expected = "this host's address in that network, or `addresses` in the file (-c)"
        raise UserInputError(what, where="--address", expected=expected)


@contextmanager
def running(settings: AgentConfig, run: RunOptions, **more: Any) -> Iterator[Agent]:
    """An agent, given `more`, with trace and metrics. Where the block ends early, peers are told why."""
    require_together("open_metrics", "metrics")
    try:
        endpoint = None if run.metrics is None else parse_endpoint(run.metrics, default_port=0)
    except ValueError as error:
        raise UserInputError(str(error), where="--metrics") from None
    with ExitStack() as stack:
        writers = [] if run.trace is None else [stack.enter_context(TraceWriter(run.trace))]
        observers = (*more.pop("observers", ()), *writers)
        agent = stack.enter_context(Agent(settings, observers=observers, **more))
        if endpoint is not None:
            server = serve_metrics(agent, endpoint, beyond_loopback=run.open_metrics)
            progress(f"metrics at http://{stack.enter_context(server)}/metrics")
        for text in agent.warnings:
            progress(f"warning: {text}")
        try:
            yield agent
        except BaseException as error:
            for peer in agent.peers:
                agent.disconnect(peer, reason_of(error))
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


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(SIGNAL_EXIT_CODE + number)


@contextmanager
def orderly_end() -> Iterator[None]:
    """SIGTERM ends as an error does: peers are told, no part of a file stays, the last line says why."""
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    except SystemExit as error:
        if error.code == SIGNAL_EXIT_CODE + signal.SIGTERM:
            last_words("mltswitch: told to end (SIGTERM)")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
