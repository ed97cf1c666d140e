"""What the commands that open an agent share: options, and settings from them."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from mltswitch.cli.numbers import NumberRange
from mltswitch.cli.output import json_option
from mltswitch.errors import UserInputError
from mltswitch.hostagent import AgentConfig, Endpoint
from mltswitch.hostagent.transport.description import transports

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
        return load_settings(self.config, self.fields, default_name=default_name)


def load_settings(
    config: Path | None, fields: Mapping[str, Any], *, default_name: str = "", **names: str
) -> AgentConfig:
    """Of a file and of fields that go before it; `names` are those of fields that are no option's own.

    Raises UserInputError naming the field or the option.
    """
    given: dict[str, Any] = {
        field: list(value) if isinstance(value, tuple) else value
        for field, value in fields.items()
        if value is not None and value is not False and value != ()
    }
    for field in {"plan", "keys"} & set(given):  # from this folder, not from the file's
        given[field] = str(given[field].absolute())
    with naming_options(*given, **names):
        return AgentConfig.load(config, given, default_name=default_name)


def agent_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Of every command that opens an agent, which is given them, and fields of settings, as `run`."""

    @wraps(command)
    def with_run(**options: Any) -> None:
        shared = {entry.name: options.pop(entry.name) for entry in fields(RunOptions)[:-1]}
        given = {name: options.pop(name) for name in _FIELDS & set(options)}
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
def naming_options(*fields: str, **names: str) -> Iterator[None]:
    """Errors of the library name the place of a value; here that is an option."""
    try:
        yield
    except UserInputError as error:
        field = re.split(r"[.\[]", error.where.rpartition(": ")[2])[0]
        if field in {*fields, *names}:
            error.where = names.get(field) or option_name(field)
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
