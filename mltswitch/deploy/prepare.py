"""Everything that can be found wrong before the first connection is opened."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mltswitch.deploy.cabling import Cabling
from mltswitch.deploy.p4runtime import check_p4runtime
from mltswitch.deploy.ssh import host_keys, require_packages, unlock_keys
from mltswitch.errors import UserInputError
from mltswitch.inventory import Device, Inventory
from mltswitch.inventory.device import UNIX_SOCKET
from mltswitch.plan import Plan
from mltswitch.targets import FittedState, SessionKind, Target, target_for


@dataclass(frozen=True, slots=True)
class Job:
    """One device, its target, and the state that it should run."""

    device: Device
    target: Target
    fitted: FittedState
    cabling: Cabling
    """Where each port of the fabric leads, to compare with the device's LLDP neighbours."""


def prepare(plan: Plan, inventory: Inventory, limit: str | None) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """The jobs of the selected devices, and warnings about the rest of the fabric.

    Raises UserInputError where inventory and fabric disagree or a credential is missing, UnsupportedPlanError
    where one device cannot express the plan, MachineError where a package is missing; nothing was sent then.
    """
    require_packages()
    devices = inventory.select(limit, plan.topology.by_name)
    _match(plan, inventory, devices)
    by_ssh = [device for device in devices if not _is_p4runtime(device)]
    for device in by_ssh:
        for secret in device.secrets:
            secret.read(device.name)
    unlock_keys(by_ssh)
    _check_known_hosts(by_ssh)
    if len(by_ssh) < len(devices):
        check_p4runtime()
    cabling = Cabling.of(plan, inventory)
    warnings = (*inventory.left_out(limit), *_uncovered(plan, inventory))
    return tuple(_job(plan, device, cabling) for device in devices), warnings


def addresses(devices: Iterable[Device]) -> dict[str, str]:
    """Device → the address by which it is locked; it tells apart P4Runtime devices behind one endpoint."""
    return {device.name: f"{device.endpoint} {device.device_id}" for device in devices}


def _match(plan: Plan, inventory: Inventory, selected: Sequence[Device]) -> None:
    """Raise UserInputError where a selected device is no switch of the plan, or stands for two."""
    for device in selected:
        where = f"{inventory.path}: {device.name}"
        switch = plan.topology.by_name.get(device.switch)
        if switch is None:
            raise UserInputError(
                f"fabric {plan.fabric.name} has no switch {device.switch!r}",
                where=where,
                hint="set mltswitch_switch to the switch's name in the fabric",
            )
        if switch.platform != device.platform:
            raise UserInputError(
                f"its platform is {device.platform} in the inventory, {switch.platform} in the plan's fabric",
                where=where,
            )
        if device.name != device.switch and device.name in plan.topology.by_name:
            raise UserInputError(
                f"is switch {device.switch} by mltswitch_switch, and the fabric has a switch {device.name}",
                where=where,
                hint="name the host as its switch, or as none: else nobody knows which box is meant",
            )
    named: dict[tuple[object, ...], str] = {}
    for device in (*selected, *inventory.devices):
        for key, what, hint in _marks(device):
            other = named.setdefault(key, device.name) if device in selected else named.get(key, device.name)
            if other != device.name:
                raise UserInputError(
                    f"{what}, as that of {other} is", where=f"{inventory.path}: {device.name}", hint=hint
                )


def _marks(device: Device) -> Iterator[tuple[tuple[object, ...], str, str]]:
    """(what no two devices have in common, in words, what to do where two have)."""
    yield (
        ("switch", device.switch),
        f"its switch in the fabric is {device.switch}",
        "correct mltswitch_switch",
    )
    own = "set ansible_host and ansible_port to its own"
    yield ("address", *_way_to(device)), f"its address is {device.endpoint}", own
    if device.thrift_port and not device.address.startswith(UNIX_SOCKET):
        thrift = f"{device.address} port {device.thrift_port}"
        own = "set mltswitch_thrift_port to the switch's --thrift-port"
        yield ("thrift", thrift), f"its thrift server is {thrift}", own


def _way_to(device: Device) -> tuple[object, ...]:
    """Equal where one switch answers."""
    if not _is_p4runtime(device):
        return device.endpoint.casefold(), device.jump_hosts
    is_path = device.address.startswith(UNIX_SOCKET)
    return device.endpoint if is_path else device.endpoint.casefold(), device.device_id


def _is_p4runtime(device: Device) -> bool:
    """Whether nobody logs in there: no key, no password, no host key."""
    return target_for(device.platform, where=device.name).session is SessionKind.P4RUNTIME


def _check_known_hosts(devices: Iterable[Device]) -> None:
    from paramiko.hostkeys import InvalidHostKey

    for path in sorted({device.known_hosts_file for device in devices}):
        if path.is_file():  # where there is none, every host key is unknown, and each device says so
            try:
                host_keys(path)
            except (OSError, ValueError, InvalidHostKey):
                raise UserInputError(
                    "cannot be read",
                    where=str(path),
                    expected="host keys, one a line, as OpenSSH writes them",
                ) from None


def _job(plan: Plan, device: Device, cabling: Cabling) -> Job:
    target = target_for(device.platform, where=device.name)
    fitted = target.fit_to_hardware(plan, device.switch)
    target.render(fitted.state, fitted.capabilities)  # raises where the text would say anything else
    return Job(device, target, fitted, cabling)


def _uncovered(plan: Plan, inventory: Inventory) -> tuple[str, ...]:
    covered = {each.switch for each in inventory.hosts}
    return tuple(
        f"switch {switch.name} of fabric {plan.fabric.name} is not in the inventory {inventory.path}"
        for switch in plan.topology.switches
        if switch.name not in covered
    )
