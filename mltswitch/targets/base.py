"""What a target is: the contract between one switch OS and everything above it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from mltswitch.capabilities import Capabilities
from mltswitch.plan import Plan
from mltswitch.targets.state import SwitchState


class Session(StrEnum):
    """How one talks to the device: over SSH, but for P4Runtime."""

    CLI = "cli"
    """An interactive vendor command line with a configuration mode."""
    SHELL = "shell"
    """A POSIX shell: one exec channel per command, with standard input and an exit status."""
    P4RUNTIME = "p4runtime"
    """Table entries over gRPC, in the words of targets/p4runtime.py."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing sent to a device.

    CLI: `command` is one configuration line. Shell: one command, fed `stdin`; a non-zero exit is a refusal.
    """

    command: str
    stdin: str = ""
    seconds: float | None = None
    """How long the device may take for it; None: the session's usual bound."""


@dataclass(frozen=True, slots=True)
class Change:
    """What takes a device from what it runs to what it should run."""

    steps: tuple[Step, ...]
    save: tuple[Step, ...] = ()
    """What makes it survive a reboot; sent only after the change was read back and found right.

    Also filled where `steps` is empty: the change before may have been applied, but never saved.
    """
    text: str = ""
    """The change as the operator sees it, in the device's own language."""
    way_back: str = ""
    """What the operator enters on the device to return to the state before; empty: it keeps none."""

    @property
    def is_empty(self) -> bool:
        """Whether the device already runs the plan."""
        return not self.steps


@dataclass(frozen=True, slots=True)
class RunningState:
    """What a device answered: the part that we own, as state, and the raw answers by query."""

    state: SwitchState
    answers: Mapping[str, str]
    notes: tuple[str, ...] = ()
    """What the operator has to know and no value of the state says, a sentence each."""
    unconfirmed: tuple[str, ...] = ()
    """What the device undoes by itself unless a push confirms it, a sentence each; verify fails for it."""


class Rounding(NamedTuple):
    """One value that the device cannot express exactly, and what that does to the predicted loss."""

    port: str
    queue: int
    traffic_class: str
    field: str
    wanted: str
    given: str
    loss_unimportant: tuple[float, float] | None = None
    """(wanted, given), predicted; None where nothing is predicted."""
    loss_important: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Quantised:
    """The plan for one switch as the device can express it, and how that differs from the plan."""

    state: SwitchState
    roundings: tuple[Rounding, ...]
    class_queues: Mapping[str, int]
    """Traffic class → hardware queue."""
    shortfalls: tuple[str, ...] = ()
    """What the plan asks for and the device cannot do, a sentence each; the rest is rendered without it."""


class Target(Protocol):
    """One switch OS. Stateless; the same plan always gives the same text."""

    platform: str
    session: Session
    netmiko_type: str
    """netmiko's name for the device type; empty without SSH."""
    hardware_names: tuple[str, ...]
    """Every model that `hardware` knows by name, those too that it refuses."""

    def hardware(self, name: str | None) -> Capabilities:
        """Capabilities of a hardware model (None: the default); raises UserInputError for unknown ones."""

    def quantise(self, plan: Plan, switch: str) -> Quantised:
        """The plan for one switch in the device's units; raises UnsupportedPlanError."""

    def render(self, state: SwitchState) -> dict[str, str]:
        """File name → text: the whole state in the device's own language."""

    def parse(self, files: Mapping[str, str]) -> SwitchState:
        """Inverse of `render`; raises UserInputError for a line outside the target's own grammar."""

    def queries(self, wanted: SwitchState) -> tuple[str, ...]:
        """Commands whose answers `read` needs, in order."""

    def read(self, answers: Mapping[str, str], wanted: SwitchState) -> RunningState:
        """State of `wanted`'s ports from the device's answers; raises DeviceError for what cannot be read."""

    def diff(self, running: RunningState, wanted: SwitchState) -> Change:
        """What takes the device from `running` to `wanted`, touching only what we own."""
