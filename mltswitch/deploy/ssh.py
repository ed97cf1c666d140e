"""Opening a session with a device: host keys are checked, credentials never shown."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final

from mltswitch.deploy.conversation import Conversation, place, quoted
from mltswitch.errors import DeviceError, MachineError
from mltswitch.inventory import Device
from mltswitch.targets import Session, Target

if TYPE_CHECKING:
    import paramiko

CONNECT_SECONDS: Final = 10.0
"""For the TCP connection."""
BANNER_SECONDS: Final = 60.0
"""From there to the SSH version line and the key exchange."""
AUTHENTICATION_SECONDS: Final = 60.0
KEEPALIVE_SECONDS: Final = 15
"""Firewalls forget a connection on which nothing is said while the switch works on a long step."""

for _name in ("paramiko", "netmiko", "nornir"):
    # Without a handler of its own, Python prints their tracebacks on the user's screen.
    logging.getLogger(_name).addHandler(logging.NullHandler())


def require_packages() -> None:
    """Raise MachineError where the packages of the `deploy` extra are missing."""
    for package in ("paramiko", "netmiko", "nornir"):
        try:
            import_module(package)
        except ImportError:
            raise MachineError(
                f"the Python package {package} is missing",
                hint="`pip install 'mltswitch[deploy]'`",
            ) from None


@contextmanager
def connect(device: Device, target: Target) -> Iterator[Conversation]:
    """A conversation in the session that the target's devices offer; raises DeviceError.

    Command lines go through netmiko. A shell gets plain paramiko: netmiko would open a terminal on it and
    guess its prompt, where exec channels give exact output, standard input and exit status. P4Runtime needs
    none of it.
    """
    if target.session is Session.P4RUNTIME:
        from mltswitch.deploy.p4runtime import open_p4runtime

        with open_p4runtime(device) as conversation:
            yield conversation
        return
    require_packages()
    with translated(device):
        if target.session is Session.SHELL:
            from mltswitch.deploy.shell import open_shell

            with open_shell(device) as conversation:
                yield conversation
        else:
            from mltswitch.deploy.command_line import open_command_line

            with open_command_line(device, target.netmiko_type) as conversation:
                yield conversation


@contextmanager
def translated(device: Device) -> Iterator[None]:
    """Whatever SSH libraries raise inside, as a DeviceError of one line."""
    import netmiko.exceptions
    import paramiko

    expected = (paramiko.SSHException, netmiko.exceptions.NetmikoBaseException, OSError, EOFError)
    try:
        yield
    except expected as error:
        # netmiko raises anew with a page of advice; what happened is the error that it was handling.
        cause = error.__context__ if type(error).__module__.startswith("netmiko") else None
        raise _explained(device, cause if isinstance(cause, expected) else error) from None


@contextmanager
def bounded(seconds: float, hang_up: Callable[[], None], error: DeviceError) -> Iterator[None]:
    """Raise `error` where the work inside takes longer.

    `hang_up` closes what the work waits for: paramiko waits without end for the answer to a channel request.
    """
    late = threading.Event()

    def give_up() -> None:
        late.set()
        hang_up()

    watchdog = threading.Timer(seconds, give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    except Exception:
        if not late.is_set():
            raise
    finally:
        watchdog.cancel()
    if late.is_set():
        raise error


def _explained(device: Device, error: Exception) -> DeviceError:
    import paramiko

    if isinstance(error, paramiko.BadHostKeyException):
        return _wrong_host_key(device, error)
    if isinstance(error, paramiko.AuthenticationException):
        return _refused_credentials(device, error)
    if "not found in known_hosts" in str(error):
        return _unknown_host_key(device)
    what, hint = _reason(error)
    return DeviceError(what, where=place(device), hint=hint)


def _reason(error: Exception) -> tuple[str, str]:
    """(what happened, what to do) when connecting or talking failed."""
    import netmiko.exceptions
    import paramiko.ssh_exception

    if isinstance(error, socket.gaierror):
        return "its address cannot be resolved", "check ansible_host"
    if isinstance(error, TimeoutError | netmiko.exceptions.ReadTimeout):
        return "does not answer in time", "see whether it is up, reachable and not overloaded"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        cause = next(iter(error.errors.values()))
        reason = cause.strerror if isinstance(cause, OSError) else cause
        return f"cannot be reached: {reason}", "check its address and port, and the route to it"
    if isinstance(error, EOFError):
        return "it closed the connection", ""
    return f"the SSH session failed: {quoted(str(error))}", ""


def _wrong_host_key(device: Device, error: "paramiko.BadHostKeyException") -> DeviceError:
    return DeviceError(
        f"its host key {error.key.get_name()} {error.key.fingerprint} is not the one in "
        f"{device.known_hosts_file}; nothing was sent",
        where=place(device),
        expected=f"{error.expected_key.get_name()} {error.expected_key.fingerprint}",
        hint="the switch was reinstalled, or something else answers at its address: compare with the "
        "fingerprint on the switch's console before you replace the line",
    )


def _unknown_host_key(device: Device) -> DeviceError:
    address = device.address if device.port == 22 else f"[{device.address}]:{device.port}"
    return DeviceError(
        "its host key is not known; nothing was sent",
        where=place(device),
        expected=f"a line for {address} in {device.known_hosts_file}",
        hint=f"get it with `ssh-keyscan -p {device.port} {device.address}`, compare its fingerprint "
        "(ssh-keygen -lf) with the one on the switch's console, and add it to that file",
    )


def _refused_credentials(device: Device, error: "paramiko.AuthenticationException") -> DeviceError:
    import paramiko

    if isinstance(error, paramiko.PasswordRequiredException):
        return DeviceError(
            f"its private key {device.key_file} is encrypted",
            where=place(device),
            expected="a key without passphrase",
        )
    offered = [f"the key {device.key_file}"] if device.key_file is not None else []
    offered += ["a password"] if device.password_variable is not None else []
    return DeviceError(
        f"refuses user {device.user} with {' and '.join(offered)}",
        where=place(device),
        hint="check ansible_user, and what the switch accepts for this user",
    )
