"""SSH connections to devices: host keys are checked, credentials never shown."""

import getpass
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mltswitch.deploy.session import named, quoted
from mltswitch.errors import DeviceError, MachineError, UnreachableError, UserInputError
from mltswitch.inventory import Device

if TYPE_CHECKING:
    import paramiko

SSH_PORT: Final = 22
BANNER_SECONDS: Final = 60.0
"""Time limit in seconds from the TCP connection to the SSH version line and the key exchange."""
AUTHENTICATION_SECONDS: Final = 60.0
KEEPALIVE_SECONDS: Final = 15
"""Seconds between keepalives: firewalls forget an idle connection while the switch works on a long step."""

_unlocked: "dict[Path, paramiko.PKey]" = {}
"""Private keys that a passphrase opened: nobody is asked twice, nor while devices are worked on."""

for _name in ("paramiko", "nornir"):
    # Without a handler of its own, Python prints their tracebacks on the user's screen.
    logging.getLogger(_name).addHandler(logging.NullHandler())


def require_packages() -> None:
    """Raise MachineError where the packages of the `deploy` extra are missing."""
    for package in ("paramiko", "nornir"):
        try:
            import_module(package)
        except ImportError:
            raise MachineError(
                f"the Python package {package} is missing",
                hint="`pip install 'mltswitch[deploy]'`",
            ) from None


def unlock_keys(devices: Iterable[Device]) -> None:
    """Open the private keys of these devices, asking for passphrases where nothing else gives them.

    Raises UserInputError for a key that cannot be opened, and where a device has neither key nor password.
    """
    require_packages()
    import paramiko

    for device in devices:
        if device.key_file is not None:
            _private_key(device.key_file, device)
        elif device.password is None and device.user and not paramiko.Agent().get_keys():
            raise UserInputError(
                "has neither a key nor a password, and no SSH agent holds a key",
                where=device.name,
                hint="set ansible_ssh_private_key_file or mltswitch_password_env",
            )


@contextmanager
def route(device: Device) -> "Iterator[paramiko.Channel | None]":
    """A channel to the device through its jump hosts, whose host keys are checked, too; None without any."""
    import paramiko

    hops = [
        replace(device, name=f"jump host of {device.name}", address=hop.address, port=hop.port, user=hop.user)
        for hop in device.jump_hosts
    ]
    with ExitStack() as stack:
        channel = None
        for hop, following in pairwise((*hops, device)):
            with translated(hop):
                transport = stack.enter_context(logged_in(hop, channel, is_jump_host=True))
                ends = (following.address, following.port), ("127.0.0.1", 0)
                try:
                    channel = transport.open_channel("direct-tcpip", *ends, timeout=hop.connect_seconds)
                except paramiko.ChannelException as error:
                    raise DeviceError(f"does not reach {following.endpoint}: {error.text}") from None
        yield channel


@contextmanager
def logged_in(
    device: Device, channel: "paramiko.Channel | None", *, is_jump_host: bool = False
) -> "Iterator[paramiko.Transport]":
    """An authenticated SSH connection, through `channel` if there is one; the host key is checked first.

    A key or password that the inventory names is offered alone, else all keys of the SSH agent. A jump host
    is offered both kinds of key, and never the device's password.
    """
    import paramiko

    secret = None if is_jump_host or device.password is None else device.password.read(device.name)
    with closing(paramiko.SSHClient()) as client:
        for kind, key in known_keys(device).items():
            client.get_host_keys().add(known_as(device), kind, key)
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        with agreeing() as transport_factory:
            client.connect(
                device.address,
                port=device.port,
                username=device.user,
                look_for_keys=False,
                timeout=device.connect_seconds,
                banner_timeout=BANNER_SECONDS,
                auth_timeout=AUTHENTICATION_SECONDS,
                sock=channel,
                transport_factory=transport_factory,
                password=None if secret is None else secret.get_secret_value(),
                pkey=None if device.key_file is None else _private_key(device.key_file, device),
                allow_agent=is_jump_host or (device.key_file is None and secret is None),
            )
        transport = client.get_transport()
        if transport is None:
            raise EOFError
        transport.set_keepalive(KEEPALIVE_SECONDS)
        if isinstance(transport.sock, socket.socket):
            # Else a command waits 40 ms for the acknowledgement of the packet that opened its channel.
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield transport


@contextmanager
def agreeing() -> "Iterator[Callable[..., paramiko.Transport]]":
    """Yields the function that makes an SSH connection; its error names algorithms that do not match."""
    import paramiko

    made: list[paramiko.Transport] = []
    offered: dict[str, list[str]] = {}

    class Remembering(paramiko.Transport):
        def _really_parse_kex_init(self, *arguments: Any, **named: Any) -> dict[str, list[str]]:
            made.append(self)
            offered.update(super()._really_parse_kex_init(*arguments, **named))  # type: ignore[misc]
            return offered

    try:
        yield Remembering
    except (paramiko.SSHException, EOFError):
        if made:
            _check_agreement(made[0].get_security_options(), offered)
        raise


def _check_agreement(ours: "paramiko.SecurityOptions", offered: Mapping[str, Sequence[str]]) -> None:
    for what, field, accepted in (
        ("key exchanges", "kex_algo_list", ours.kex),
        ("kinds of host key", "server_key_algo_list", ours.key_types),
        ("ciphers", "server_encrypt_algo_list", ours.ciphers),
        ("message authentication codes", "server_mac_algo_list", ours.digests),
    ):
        if not set(accepted) & set(offered[field]):
            raise DeviceError(
                f"its SSH server offers only {what} that are given up as unsafe: "
                f"{quoted(', '.join(offered[field]))}",
                expected=f"one of {', '.join(accepted)}",
                hint="let the device offer one of these (a newer release of its OS, another host key); "
                "what is based on SHA-1 works with `pip install 'paramiko<5'`",
            ) from None


def known_as(device: Device) -> str:
    """The device's name in a file of known hosts."""
    return device.address if device.port == SSH_PORT else f"[{device.address}]:{device.port}"


def known_keys(device: Device) -> "Mapping[str, paramiko.PKey]":
    """The device's host keys in the known_hosts file, by kind; empty where it is unknown."""
    path = device.known_hosts_file
    return (host_keys(path).lookup(known_as(device)) or {}) if path.is_file() else {}


def host_keys(path: Path) -> "paramiko.HostKeys":
    """The host keys in a known_hosts file; raises what paramiko's HostKeys raises.

    The file is read again only after a change: paramiko takes a quarter of a second for a thousand lines.
    """
    return _host_keys(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _host_keys(path: Path, _changed_ns: int) -> "paramiko.HostKeys":
    import paramiko

    return paramiko.HostKeys(str(path))


def _private_key(path: Path, device: Device) -> "paramiko.PKey":
    """The key of a file; an encrypted one from the agent, or by the inventory's or the user's passphrase."""
    import paramiko

    where = f"{device.name}: {path}"
    if path in _unlocked:
        return _unlocked[path]
    try:
        return _loaded(path, None)
    except OSError as error:
        hint = "the key is a lab's, which is not up: `mltswitch lab up`" if ".lab" in path.parts else ""
        what = f"the private key cannot be read: {error.strerror}"
        raise UserInputError(what, where=where, hint=hint) from None
    except paramiko.PasswordRequiredException:
        public = path.with_name(f"{path.name}.pub")
        blob = public.read_text().split()[1:2] if public.is_file() else []
        for held in paramiko.Agent().get_keys():
            if [held.get_base64()] == blob:
                return held
    except (paramiko.SSHException, ValueError):
        raise UserInputError("holds no private key of a known kind", where=where) from None
    if device.passphrase is not None:
        passphrase = device.passphrase.read(device.name).get_secret_value()
    elif sys.stdin.isatty():
        passphrase = getpass.getpass(f"Passphrase of {path}: ")
    else:
        hint = "add it to ssh-agent, or set mltswitch_key_passphrase_env"
        raise UserInputError("the private key is encrypted", where=where, hint=hint)
    try:
        return _unlocked.setdefault(path, _loaded(path, passphrase))
    except (paramiko.SSHException, ValueError):
        raise UserInputError("the passphrase does not open it", where=where) from None


def _loaded(path: Path, passphrase: str | None) -> "paramiko.PKey":
    import paramiko

    kinds: tuple[type[paramiko.PKey], ...] = (paramiko.Ed25519Key, paramiko.ECDSAKey)
    for kind in kinds:
        try:
            return kind.from_private_key_file(str(path), passphrase)
        except paramiko.PasswordRequiredException:
            raise
        except (paramiko.SSHException, ValueError):
            continue
    return paramiko.RSAKey.from_private_key_file(str(path), passphrase)


@contextmanager
def translated(device: Device) -> Iterator[None]:
    """Turn any error of the SSH libraries inside into a DeviceError of one line, which names the device."""
    import paramiko

    with named(device):
        try:
            yield
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise _explained(device, error) from None


@contextmanager
def bounded(seconds: float, hang_up: Callable[[], None], error: DeviceError) -> Iterator[None]:
    """Raise `error` where the work inside takes longer than `seconds`.

    `hang_up` closes the connection for which the work waits: paramiko waits without end for the answer to a
    channel request.
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
        return DeviceError(
            f"its host key {error.key.get_name()} {error.key.fingerprint} is not the one in "
            f"{device.known_hosts_file}; nothing was sent",
            expected=f"{error.expected_key.get_name()} {error.expected_key.fingerprint}",
            hint="the switch was reinstalled, or something else answers at its address: compare with the "
            "fingerprint on the switch's console before you replace the line",
        )
    if isinstance(error, paramiko.AuthenticationException):
        offered = [f"the key {device.key_file}"] if device.key_file is not None else []
        offered += ["a password"] if device.password is not None else []
        return DeviceError(
            f"refuses user {device.user} with {' and '.join(offered) or 'the keys of the SSH agent'}",
            hint="check ansible_user, and what the switch accepts for this user",
        )
    if "not found in known_hosts" in str(error):
        return DeviceError(
            "its host key is not known; nothing was sent",
            expected=f"a line for {known_as(device)} in {device.known_hosts_file}",
            hint="compare its fingerprint with the switch's console: `mltswitch trust` shows and adds it; "
            f"`ssh-keyscan -p {device.port} {device.address}` prints the line",
        )
    what, hint = _reason(error)
    return (DeviceError if isinstance(error, socket.gaierror) else UnreachableError)(what, hint=hint)


def _reason(error: Exception) -> tuple[str, str]:
    """(what happened, what to do) when connecting or talking failed."""
    import paramiko.ssh_exception

    if isinstance(error, socket.gaierror):
        return "its address cannot be resolved", "check ansible_host"
    if isinstance(error, TimeoutError):
        return "does not answer in time", "see whether it is up, reachable and not overloaded"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        cause = next(iter(error.errors.values()))
        reason = cause.strerror if isinstance(cause, OSError) else cause
        return f"cannot be reached: {reason}", "check its address and port, and the route to it"
    if isinstance(error, EOFError):
        return "it closed the connection", ""
    return f"the SSH session failed: {quoted(str(error))}", ""
