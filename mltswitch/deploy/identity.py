"""Whether the box that answers is the one that the inventory means."""

from mltswitch.deploy.conversation import Conversation, place, quoted
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device
from mltswitch.targets import Identity, Target


def check_identity(device: Device, target: Target, conversation: Conversation) -> Identity | None:
    """Ask the device who it is, and return that; None where its target has no words for it.

    Only queries are sent. Raises DeviceError where the device is not the one that the inventory names, or
    does not say who it is.
    """
    if target.identify is None:
        return None
    answers = {query: conversation.ask(query) for query in target.identity_queries}
    try:
        identity = target.identify(answers)
    except DeviceError as error:
        error.where = f"{place(device)}: {error.where}" if error.where else place(device)
        raise
    _check_hostname(device, identity)
    for variable, wanted, given in (
        ("mltswitch_serial", device.serial, identity.serial),
        ("mltswitch_model", device.model, identity.model),
    ):
        if wanted and given.casefold() != wanted.casefold():
            raise _stranger(device, identity, f"{variable} {wanted}", f"correct {variable}")
    return identity


def _check_hostname(device: Device, identity: Identity) -> None:
    """Compares first labels: a switch may call itself leaf1 or leaf1.example.net.

    A box without a name is known by its serial number, where the inventory has that.
    """
    if not identity.hostname and device.serial:
        return
    wanted = dict.fromkeys((device.hostname,) if device.hostname else (device.name, device.switch))
    if _label(identity.hostname) not in map(_label, wanted):
        raise _stranger(
            device,
            identity,
            f"the name {' or '.join(wanted)}",
            "set mltswitch_hostname to what it calls itself" if identity.hostname else "set mltswitch_serial",
        )


def _label(hostname: str) -> str:
    return hostname.partition(".")[0].casefold()


def _stranger(device: Device, identity: Identity, expected: str, change: str) -> DeviceError:
    parts = (("serial", identity.serial), ("model", identity.model))
    details = ", ".join(f"{word} {quoted(value)}" for word, value in parts if value)
    name = quoted(identity.hostname) or "a box without a name"
    return DeviceError(
        f"says that it is {name}{f' ({details})' if details else ''}, not {device.switch}; nothing was sent",
        where=place(device),
        expected=expected,
        hint=f"correct ansible_host and ansible_port if another box answers there; else {change}",
    )
