"""What the commands that open an agent share: options, and settings from them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from mltswitch.app.transfer import Run
from mltswitch.cli.command import JSON, flag, option
from mltswitch.cli.options import PATH, NumberRange, parsed
from mltswitch.cli.output import progress, progress_bar
from mltswitch.errors import UserInputError
from mltswitch.hostagent import AgentConfig, Endpoint
from mltswitch.hostagent.endpoint import parse_endpoint
from mltswitch.hostagent.transport.description import transports

_SECONDS: Final = NumberRange(0, 1e6, min_open=True)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options that say which agent a command opens."""

    config: Path | None = option(
        "This host's agent; options precede it.",
        PATH,
        "-c",
        "--config",
        variable="AGENT_CONFIG",
        metavar="FILE",
    )
    name: str | None = option("Of this host; by default as its certificate says.", metavar="HOST")
    plan: Path | None = option("Take paths, rates and classes from it.", PATH)
    keys: Path | None = option("This host's keys.", PATH, metavar="FOLDER")
    plaintext: bool = flag("No keys, yet beyond loopback: in your own laboratory.")
    addresses: tuple[str, ...] = option(
        "Of the data, one a path.", None, "--address", multiple=True, metavar="IP"
    )
    mtu_bytes: int | None = option("Longest packet of the way.", int, "--mtu", metavar="BYTES")

    def settings(self, default_name: str = "", *, names: Mapping[str, str] = {}, **more: Any) -> AgentConfig:
        """The settings of the agent from its file and options, and from `more` fields, which the file does
        not override.

        Raises UserInputError naming the field or the option; `names` are options of fields that have others.
        """
        # The option --trace names a file; an agent's `trace` is a folder with more to say of it.
        of_settings = {*AgentConfig.model_fields, "line_rate"} - {"trace"}
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name in of_settings}
        return load_settings(self.config, given | more, default_name=default_name, **names)


@dataclass(frozen=True, slots=True)
class RunOptions(AgentOptions):
    """Options of commands that run an agent for an exchange."""

    line_rate: str | None = option("Of this host's link, without a plan: 25Gbps, say.", metavar="RATE")
    transport: str | None = option("Alike at both ends.", click.Choice(list(transports())))
    wait_seconds: float = option(
        "For peers; by default 60.", _SECONDS, "--wait", default=60.0, metavar="SECONDS"
    )
    deadline_seconds: float | None = option(
        "Of each round; by default 60.", _SECONDS, "--deadline", metavar="SECONDS"
    )
    metrics: str | None = option("Serve Prometheus there while it runs.", metavar="ADDRESS:PORT")
    open_metrics: bool = flag("Let --metrics be beyond loopback: anybody may read.")
    trace: Path | None = option("Write what happens there.", PATH, metavar="FILE")
    as_json: bool = JSON

    def run(self, settings: AgentConfig) -> Run:
        """How an agent with these settings is run for an exchange."""
        require_together("open_metrics", "metrics")
        parse = partial(parse_endpoint, default_port=0)
        return Run(
            settings=settings,
            wait_seconds=self.wait_seconds,
            deadline_seconds=self.deadline_seconds,
            metrics=None if self.metrics is None else parsed("--metrics", parse, self.metrics),
            beyond_loopback=self.open_metrics,
            trace=self.trace,
            tell=progress,
            bar=progress_bar,
        )


def load_settings(
    config: Path | None, fields: Mapping[str, Any], *, default_name: str = "", **names: str
) -> AgentConfig:
    """The settings of a file and of fields that go before it.

    Raises UserInputError naming the field or its option; `names` are those of fields that have no option.
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


@contextmanager
def naming_options(*fields: str, **names: str) -> Iterator[None]:
    """Errors of the library inside name an option as the place of a wrong value."""
    try:
        yield
    except UserInputError as error:
        field = re.split(r"[.\[]", error.where.rpartition(": ")[2])[0]
        if field in {*fields, *names}:
            error.where = names.get(field) or option_name(field)
        raise


def option_name(parameter: str) -> str:
    """The option of a function's parameter, as users write it."""
    options = {entry.name: entry.opts for entry in click.get_current_context().command.params}
    return max(options[parameter], key=len)


def require_together(parameter: str, other: str) -> None:
    """Raise UserInputError where an option is given without the other one that gives it a meaning."""
    source = click.get_current_context().get_parameter_source
    if source(parameter) is ParameterSource.COMMANDLINE != source(other):
        raise UserInputError(f"means nothing without {option_name(other)}", where=option_name(parameter))


def require_way_out(settings: AgentConfig, peer: str, there: Endpoint) -> None:
    """Raise UserInputError where a peer is on another machine and this agent's data address is loopback."""
    ours = settings.addresses[0]
    if settings.plaintext and Endpoint(ours, 0).ip.is_loopback and not there.ip.is_loopback:
        what = f"data from {ours} does not leave this machine, and {peer} is at {there}"
        expected = "this host's address in that network, or `addresses` in the file (-c)"
        raise UserInputError(what, where="--address", expected=expected)
