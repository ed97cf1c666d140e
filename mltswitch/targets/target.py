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
    """Name of the command line's dialect in netmiko; empty where the session is no command line."""
    models: Mapping[str, Capabilities]
    """Name of a hardware model → its capabilities, the default first."""
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Name of a hardware model for which nothing is rendered → why."""
    files: tuple[str, ...]
    """Names of the rendered files of a device."""
    port_name: re.Pattern[str]
    port_examples: str
    route_port_name: re.Pattern[str] | None = None
    """Pattern of port names in routes, where they differ; None where routes name the next hop alone."""
    adapt: Callable[[FittedState, Plan, Switch], FittedState] = _adapt_nothing
    """Removes from a rounded state what the device cannot hold, and adds what else it needs."""
    check: Callable[[SwitchState], object] = _check_nothing
    """Refuses what the language cannot express, beyond the capabilities; raises UnsupportedPlanError."""
    write: Callable[[SwitchState, Capabilities], dict[str, str]]
    """File name → text: the whole state in the device's own language, in an order that is safe to enter."""
    read_files: Callable[[Mapping[str, str], Capabilities], SwitchState]
    """Reads the files of `write`; raises LineError, FileError, UnsupportedPlanError or UserInputError."""
    queries: Callable[[SwitchState], tuple[str, ...]]
    """State → commands whose answers `read` needs, in order."""
    read: Callable[[Mapping[str, str], SwitchState, Capabilities], RunningState]
    """The running state of the wanted ports, from the device's answers; raises DeviceError if unreadable."""
    diff: Callable[[RunningState, SwitchState, Capabilities], Change]
    """The change from the running to the wanted state, which touches only what mltswitch manages."""
    restore: Callable[[Mapping[str, str], RunningState, SwitchState, Capabilities], Change]
    """The change that undoes a push: from what runs back to what the device answered before it.

    It covers only what a push of the wanted state may have changed, and is empty where that runs already.
    Raises DeviceError for what cannot be restored.
    """
    takes_down: bool = False
    """Whether ports may stop forwarding while a change is made; which ones, the change says."""
    timer: Timer | None = None
    """How the device undoes a change by itself; None where it cannot."""
    guard: Guard
    """How the device keeps two operators apart, and what tells that it is idle."""
    identity_queries: tuple[str, ...] = ()
    """Commands whose answers `identify` needs; they change nothing."""
    identify: Callable[[Mapping[str, str]], Identity] | None = None
    """Finds the device's identity in its answers; raises DeviceError; None: the target cannot identify it."""
    neighbour_query: str = ""
    """Command that lists the neighbours by LLDP; empty: none is known."""
    neighbours: Callable[[str], Iterable[Neighbour]] | None = None
    """Finds the neighbours in the answer to `neighbour_query`; for an unknown form it raises an error that
    `known_form` turns into DeviceError."""
    tells_port_names: bool = True
    """Whether LLDP tells the device's neighbours its own port names, not aliases of them."""
    counters: CounterSource | None = None
    """How the device is asked for queue counters; None: it tells none in a known form."""
    no_counters: str = ""
    """Why `counters` is None."""
    settled_by_acceptance: tuple[str, ...] = ()
    """Ends of the IDs of `unverified` capabilities that an acceptance test verifies completely."""
    network_os: str = ""
    """The full name by which an Ansible collection calls the OS; empty: no collection exists for it."""
    play: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Placeholder in the Ansible play that enters each line (export/plays/cli.yaml) → its text; empty: the
    target has a play of its own."""
    has_enable_mode: bool = True
    """Whether its command line has a privileged (enable) mode."""
    saved_files: Callable[[SwitchState], Mapping[str, str]] | None = None
    """Path on the device → text of the files that a push leaves there; None: it leaves none."""
    hardware_of: Callable[[str], Collection[str]] = _knows_no_model
    """Model in the vendor's words → names of that hardware in plans; empty for one that no source names."""
    releases: tuple[Release, ...] = ()
    """Versions of the OS that a device may run; empty: any, or the target finds out what each one takes."""

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
        """File name → text, parsed again as a check; raises UnsupportedPlanError."""
        self._check(state, capabilities)
        files = self.write(state, capabilities)
        if self.parse(files, capabilities) != state:
            raise UserInputError(
                "what is rendered does not say what the plan says", where=", ".join(self.files)
            )
        return files

    def parse(self, files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
        """Read the files of `render` back; raises UserInputError for what the target's grammar lacks."""
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
