"""Checks that the device which answers is the one that the inventory means."""

from mltswitch.deploy.session import Session, named, quoted
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device
from mltswitch.targets import Identity, Target


def check_identity(device: Device, target: Target, session: Session, hardware: str = "") -> Identity | None:
    """Ask the device for its identity, check and return it; None where its target cannot read one.

    Only queries are sent. Raises DeviceError where the device is not the one that the inventory names, is
    known to be other hardware than the plan was made for (empty: no plan), runs a release of which its target
    knows nothing, or does not say who it is. A model that no source names is not refused.
    """
    if target.identify is None:
        return None
    with named(device):
        identity = target.identify(session.ask_all(target.identity_queries))
        _check_hostname(device, identity)
        for variable, wanted, given in (
            ("mltswitch_serial", device.serial, identity.serial),
            ("mltswitch_model", device.model, identity.model),
            ("mltswitch_release", device.release, identity.release),
        ):
            if wanted and given.casefold() != wanted.casefold():
                raise _stranger(identity, "", f"{variable} {wanted}", f"correct {variable}")
        told = target.hardware_of(identity.model)
        if hardware and told and hardware not in told:
            raise DeviceError(
                f"is a {quoted(identity.model)}, hardware {' or '.join(sorted(told))}; nothing was sent",
                expected=f"{hardware}, for which the plan was made",
                hint="correct ansible_host if another box answers there; else `hardware` in the fabric file",
            )
        _check_release(device, target, identity.release)
    return identity


def _check_release(device: Device, target: Target, release: str) -> None:
    """A device that tells no release, and one that runs the inventory's, are not held against the list."""
    known = [each for each in target.releases if each.pattern.match(release)]
    if not target.releases or not release or device.release or known:
        return
    shown = quoted(release)
    raise DeviceError(
        f"runs {target.platform} {shown}, a release of which mltswitch knows nothing; nothing was sent",
        expected=" or ".join(each.versions for each in target.releases),
        hint=f"where you have tried it: mltswitch_release: {shown} in the inventory",
    )


def _check_hostname(device: Device, identity: Identity) -> None:
    """Compares first labels: a switch may call itself leaf1 or leaf1.example.net.

    A box without a name is known by its serial number, where the inventory has that.
    """
    if not identity.hostname and device.serial:
        return
    wanted = dict.fromkeys((device.hostname,) if device.hostname else (device.name, device.switch))
    if label(identity.hostname) not in map(label, wanted):
        own = "mltswitch_hostname to what it calls itself" if identity.hostname else "mltswitch_serial"
        raise _stranger(identity, f", not {device.switch}", f"the name {' or '.join(wanted)}", f"set {own}")


def label(hostname: str) -> str:
    """A host name in the form in which names are compared: without domain, in lower case."""
    return hostname.partition(".")[0].casefold()


def _stranger(identity: Identity, other: str, expected: str, change: str) -> DeviceError:
    parts = (("serial", identity.serial), ("model", identity.model), ("release", identity.release))
    details = ", ".join(f"{word} {quoted(value)}" for word, value in parts if value)
    name = quoted(identity.hostname) or "a box without a name"
    return DeviceError(
        f"says that it is {name}{f' ({details})' if details else ''}{other}; nothing was sent",
        expected=expected,
        hint=f"correct ansible_host and ansible_port if another box answers there; else {change}",
    )
