"""A small plan, a target whose switches keep their configuration in a file, and scripted sessions."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from mltswitch.capabilities import BytesLimit, Capabilities
from mltswitch.deploy import Fleet, Session
from mltswitch.errors import DeviceError, UnsupportedPlanError
from mltswitch.inventory import Device, Inventory, Secret
from mltswitch.plan import ClassKind, Fabric, Paths, Plan, Provenance, QueueSettings, TrafficClass
from mltswitch.plan.document import PortProfile
from mltswitch.plan.topology_document import PortRole
from mltswitch.targets import (
    Change,
    FittedState,
    Guard,
    PortState,
    QueueState,
    Rounding,
    RunningState,
    SessionKind,
    Step,
    SwitchState,
    Target,
    hardware_capabilities,
)
from tests.plan.examples import SMALL

SWITCHES = ("spine1", "spine2", "leaf1", "leaf2")
PLANNED_LIMIT_BYTES = 60_000
CAPABILITIES = hardware_capabilities("linux", None)
ROUNDING = Rounding("eth1", 0, "background", "limit", "60001", "60000")


def small_plan() -> Plan:
    """Two spines and two leaves of platform `file`, one class."""
    fabric = Fabric.model_validate(SMALL)
    shape = fabric.topology.leaf_spine
    assert shape is not None
    groups = {
        tier: getattr(shape, tier).model_copy(update={"platform": "file"}) for tier in ("spines", "leaves")
    }
    topology = fabric.topology.model_copy(update={"leaf_spine": shape.model_copy(update=groups)})
    limit = BytesLimit(size_bytes=PLANNED_LIMIT_BYTES)
    return Plan(
        schema="mltswitch/plan/v2",
        provenance=Provenance(
            tool_version="0",
            queueing_model="paper",
            profile_name="test",
            profile_sha256="0" * 64,
            fabric_sha256="0" * 64,
            sensitivity="none",
        ),
        unimportant_share=0.5,
        classes=(TrafficClass(name="background", kind=ClassKind.BACKGROUND, dscp=(0,), load=0.1),),
        port_profiles=(
            PortProfile(
                platform="file",
                hardware="file",
                role=PortRole.LEAF_UP,
                rate_bps=10**9,
                shaped=False,
                packet_bytes=1500,
                buffer_bytes=100_000,
                load=0.5,
                queues=(QueueSettings(traffic_class="background", limit=limit),),
            ),
        ),
        end_to_end=(),
        hops=3,
        paths=Paths(mode="alias", rule="address = alias prefix of the spine + host index", burst_packets=1),
        fabric=fabric.model_copy(update={"topology": topology}),
    )


def device(name: str, **changes: object) -> Device:
    """A device that nobody connects to; its password is any variable that is set."""
    fields: dict[str, object] = {
        "name": name,
        "platform": "file",
        "switch": name,
        "address": "127.0.0.1",
        "port": 22,
        "user": "admin",
        "key_file": None,
        "known_hosts_file": Path("/nonexistent/known_hosts"),
        "password": Secret("mltswitch_password_env", "PATH"),
        "groups": ("all",),
    }
    return Device(**(fields | changes))  # type: ignore[arg-type]  # the fields' types are those above


def inventory(*names: str) -> Inventory:
    """Devices of these names."""
    devices = tuple(device(name, address=f"127.0.0.{number}") for number, name in enumerate(names, 1))
    return Inventory(devices, Path("inventory"))


def state_of(port: str, limit_bytes: int) -> SwitchState:
    """One port with one queue."""
    queue = QueueState(0, tuple(range(64)), None, BytesLimit(size_bytes=limit_bytes))
    return SwitchState((PortState(port, trusted=True, shaped_bps=None, queues=(queue,)),), ())


@dataclass
class FileTarget:
    """A switch is a file with the limit of its only queue; saved is a second file."""

    folder: Path
    unable: frozenset[str] = frozenset()
    """Switches that cannot express any plan."""
    fits: Callable[[FittedState], FittedState] = lambda fitted: fitted
    reads: Callable[[RunningState], RunningState] = lambda running: running
    changes: Callable[[Change], Change] = lambda change: change
    """What a test has its functions say in the place of what they would say."""
    platform = "file"
    session = SessionKind.SHELL
    dialect = ""
    identity_queries = ()
    identify = None
    neighbours = None
    timer = None
    guard = Guard()
    """A file says nothing about the switch that it stands for."""

    def running(self, switch: str) -> Path:
        """Where a switch keeps what it runs."""
        return self.folder / f"{switch}.conf"

    def saved(self, switch: str) -> Path:
        """Where it keeps what survives a reboot."""
        return self.folder / f"{switch}.saved"

    def fit_to_hardware(self, plan: Plan, switch: str) -> FittedState:
        """The port is named after the switch."""
        if switch in self.unable:
            raise UnsupportedPlanError("no such queue", where=switch)
        state = state_of(switch, PLANNED_LIMIT_BYTES)
        return self.fits(FittedState(state, (ROUNDING,), {"background": 0}, CAPABILITIES))

    def render(self, state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
        """One file, one number."""
        return {state.ports[0].name: f"{_limit_bytes(state)}\n"}

    def queries(self, wanted: SwitchState) -> tuple[str, ...]:
        """Read the file."""
        return (f"cat {shlex.quote(str(self.running(wanted.ports[0].name)))}",)

    def read(
        self, answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities
    ) -> RunningState:
        """The file's number; anything else is not readable."""
        [text] = answers.values()
        try:
            running = RunningState(state_of(wanted.ports[0].name, int(text)), answers)
        except ValueError:
            raise DeviceError(f"answers {text!r}", where=wanted.ports[0].name) from None
        return self.reads(running)

    def diff(self, running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
        """Write the file, and copy it to save it."""
        name = wanted.ports[0].name
        old, new = _limit_bytes(running.state), _limit_bytes(wanted)
        path, saved = (shlex.quote(str(file)) for file in (self.running(name), self.saved(name)))
        save = (Step(f"cp {path} {saved}"),)
        if running.state == wanted:
            return self.changes(Change((), save))
        steps = (Step(f"cat > {path}", f"{new}\n"),)
        return self.changes(Change(steps, save, f"-limit {old}\n+limit {new}\n"))

    def restore(
        self,
        before: Mapping[str, str],
        running: RunningState,
        wanted: SwitchState,
        capabilities: Capabilities,
    ) -> Change:
        """Write the former number into the file, and copy it."""
        return self.diff(running, self.read(before, wanted, capabilities).state, capabilities)


def as_target(target: FileTarget) -> Target:
    """The same for who asks for a `Target`: it has all that operations use."""
    return cast(Target, target)


def _limit_bytes(state: SwitchState) -> int:
    limit = state.ports[0].queues[0].limit
    assert isinstance(limit, BytesLimit)
    return limit.size_bytes


@dataclass
class ScriptedSwitches:
    """Conversations that never leave the process, and a log of everything that was said."""

    limits: dict[str, int]
    """Switch → limit that it runs; one that is missing cannot be reached."""
    deaf: frozenset[str] = frozenset()
    """Take every step and change nothing."""
    refusing: Mapping[str, str] = field(default_factory=dict)
    """Switch → beginning of the command that it refuses."""
    vanishing: set[str] = field(default_factory=set)
    """Switches that nobody reaches once something was sent to them."""
    log: list[tuple[str, str]] = field(default_factory=list)

    @property
    def fleet(self) -> Fleet:
        """By which operations reach them."""
        return Fleet(connector=self.connect)

    @contextmanager
    def connect(self, device: Device, target: Target) -> Iterator["_ScriptedSession"]:
        """A `Connector`."""
        if device.name not in self.limits or device.name in self.vanishing & self.changed():
            raise DeviceError("cannot be reached")
        self.log.append((device.name, "connected"))
        try:
            yield _ScriptedSession(self, device.name, lambda said: self.log.append((device.name, said)))
        finally:
            self.log.append((device.name, "closed"))

    def changed(self) -> set[str]:
        """Switches to which something was sent."""
        return {device for device, said in self.log if said == "changed"}

    def take(self, name: str, step: Step) -> None:
        """Do what a step says."""
        self.log.append((name, "saved" if step.command.startswith("cp ") else "changed"))
        if step.stdin and name not in self.deaf:
            self.limits[name] = int(step.stdin)

    def said(self, name: str) -> list[str]:
        """What one device heard."""
        return [said for device, said in self.log if device == name]


@dataclass
class _ScriptedSession(Session):
    switches: ScriptedSwitches
    name: str
    note: Callable[[str], None]

    def hang_up(self) -> None:
        raise AssertionError("nobody waits for a switch that never leaves the process")

    def ask(self, command: str) -> str:
        self.note("asked")
        return f"{self.switches.limits[self.name]}\n"

    def apply(self, steps: Sequence[Step]) -> None:
        for step in steps:
            refused = self.switches.refusing.get(self.name)
            if refused and step.command.startswith(refused):
                raise DeviceError(f"refuses {step.command!r}")
            self.switches.take(self.name, step)
