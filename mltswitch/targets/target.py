"""The contract between one switch OS and everything above it."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan import Plan, Switch
from mltswitch.targets.base import (
    Change,
    CounterSource,
    FileError,
    FittedState,
    Guard,
    Identity,
    LineError,
    Neighbour,
    Release,
    RunningState,
    SessionKind,
    Timer,
)
from mltswitch.targets.expressible import check_state
from mltswitch.targets.fit_to_hardware import fit_to_hardware
from mltswitch.targets.state import SwitchState


def _adapt_nothing(fitted: FittedState, _plan: Plan, _switch: Switch) -> FittedState:
    return fitted


def _check_nothing(_state: SwitchState) -> None:
    """Its capabilities say all."""


def _knows_no_model(_model: str) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One switch OS: data and pure functions; the same plan always gives the same text."""

    platform: str
    session: SessionKind
    dialect: str = ""
    """Whose command line it is, by netmiko's name; empty where the session is none."""
    models: Mapping[str, Capabilities]
    """Hardware by name, the default first."""
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Hardware that is known by name and rendered nothing for, and why."""
    files: tuple[str, ...]
    """Names of the files of a device."""
    port_name: re.Pattern[str]
    port_examples: str
    route_port_name: re.Pattern[str] | None = None
    """Port names in routes, where they are others; where routes name the next hop alone, none."""
    adapt: Callable[[FittedState, Plan, Switch], FittedState] = _adapt_nothing
    """Takes from the state what the device cannot hold, and adds what it needs beside."""
    check: Callable[[SwitchState], object] = _check_nothing
    """Refuses what the device's language cannot say, beside what its capabilities tell; raises
    UnsupportedPlanError."""
    write: Callable[[SwitchState, Capabilities], dict[str, str]]
    """File name → text: the whole state in the device's own language, in an order that is safe to enter."""
    read_files: Callable[[Mapping[str, str], Capabilities], SwitchState]
    """Inverse of `write`; raises LineError, FileError, UnsupportedPlanError or UserInputError."""
    queries: Callable[[SwitchState], tuple[str, ...]]
    """Commands whose answers `read` needs, in order."""
    read: Callable[[Mapping[str, str], SwitchState, Capabilities], RunningState]
    """State of the wanted ports from the device's answers; raises DeviceError for what cannot be read."""
    diff: Callable[[RunningState, SwitchState, Capabilities], Change]
    """What takes the device from what runs to what is wanted, touching only what we own."""
    restore: Callable[[Mapping[str, str], RunningState, SwitchState, Capabilities], Change]
    """What takes the device from what runs back to what it answered before a push of the wanted state, as far
    as that push may have changed it; empty where it runs that. Raises DeviceError for what cannot return."""
    takes_down: bool = False
    """Whether ports may stop forwarding while a change is made; which ones, the change says."""
    timer: Timer | None = None
    """How the device goes back by itself; None where it cannot."""
    guard: Guard
    """How the device keeps two operators apart, and what tells that it is idle."""
    identity_queries: tuple[str, ...] = ()
    """Commands whose answers `identify` needs; they change nothing."""
    identify: Callable[[Mapping[str, str]], Identity] | None = None
    """Who the device is, from its answers; raises DeviceError for answers that it cannot read."""
    neighbour_query: str = ""
    """Command that tells the neighbours by LLDP."""
    neighbours: Callable[[str], Iterable[Neighbour]] | None = None
    """Those in its answer; what it does with an answer of another form raises what `known_form` takes."""
    tells_port_names: bool = True
    """Whether its neighbours hear its own port names by LLDP, and not aliases of them."""
    counters: CounterSource | None = None
    """How it tells what its queues have counted; None: not in a form that we know."""
    no_counters: str = ""
    """Why there are none that we know."""
    settled_by_acceptance: tuple[str, ...] = ()
    """Items of its capabilities' `unverified`, by the ends of their IDs, of which an acceptance test sees all
    that they say."""
    network_os: str = ""
    """The full name by which an Ansible collection calls it; empty: there is none made for it."""
    play: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Words of Ansible's play that enters each line (export/plays/cli.yaml) → what stands there; empty: there
    is a play of its own."""
    has_enable_mode: bool = True
    """Of a command line: whether one becomes privileged on it."""
    saved_files: Callable[[SwitchState], Mapping[str, str]] | None = None
    """Path on the device → text of the files that a push leaves there; None: it leaves none."""
    hardware_of: Callable[[str], Collection[str]] = _knows_no_model
    """Model in the vendor's words → the hardware that it is in plans; empty for one that no source names."""
    releases: tuple[Release, ...] = ()
    """Versions of the OS that a device may run; none: any, or the target finds out what each one takes."""

    def hardware(self, name: str | None) -> Capabilities:
        """Capabilities of a hardware model (None: the default); raises UserInputError for unknown ones."""
        if name is None:
            return next(iter(self.models.values()))
        if name in self.models:
            return self.models[name]
        unknown = f"unknown hardware {name!r} for platform {self.platform}"
        raise UserInputError(
            self.reason(name) if name in self.refused else unknown,
            expected=f"one of {', '.join(self.models)}",
        )

    def reason(self, name: str) -> str:
        """Why nothing is rendered for a refused hardware model."""
        return f"hardware {name!r} cannot be planned for: {self.refused[name]}"

    def fit_to_hardware(self, plan: Plan, switch: str) -> FittedState:
        """The plan for one switch in the device's units; raises UnsupportedPlanError naming the switch."""
        entry = plan.topology.switch(switch)
        fitted = fit_to_hardware(plan, switch, self.hardware(entry.hardware))
        try:
            fitted = self.adapt(fitted, plan, entry)
            self._check(fitted.state, fitted.capabilities)
        except UnsupportedPlanError as error:
            error.where = f"{switch}: {error.where}" if error.where else switch
            raise
        return fitted

    def render(self, state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
        """File name → text, parsed again before it leaves; raises UnsupportedPlanError."""
        self._check(state, capabilities)
        files = self.write(state, capabilities)
        if self.parse(files, capabilities) != state:
            raise UserInputError(
                "what is rendered does not say what the plan says", where=", ".join(self.files)
            )
        return files

    def parse(self, files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
        """Inverse of `render`; raises UserInputError for what is not the target's own grammar."""
        if set(files) != set(self.files):
            found = ", ".join(sorted(files)) or "none"
            raise UserInputError(f"the files are {found}", expected=" and ".join(self.files))
        try:
            state = self.read_files(files, capabilities)
            self._check(state, capabilities)
        except LineError as error:
            raise self._refusal([error]) from None
        except FileError as error:
            raise self._refusal(error.errors) from None
        except UnsupportedPlanError as error:
            where = f"{self.files[0]}: {error.where}" if error.where else self.files[0]
            raise UserInputError(error.what, where=where, expected=error.expected) from None
        return state

    def _check(self, state: SwitchState, capabilities: Capabilities) -> None:
        check_state(
            state, capabilities, self.port_name, self.route_port_name or self.port_name, self.port_examples
        )
        self.check(state)

    def _refusal(self, errors: list[LineError]) -> UserInputError:
        """The first error with its place, and behind it the others with theirs."""
        first, *others = errors
        where = first.file or self.files[0]
        more = "".join(
            f"; line {error.number}: {error}" if error.number else f"; {error}" for error in others
        )
        return UserInputError(f"{first}{more}", where=f"{where}:{first.number}" if first.number else where)
