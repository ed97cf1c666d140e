"""The variables that mltswitch uses, checked, as a `Device`."""

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mltswitch.errors import UserInputError
from mltswitch.inventory.device import UNIX_SOCKET, Device
from mltswitch.inventory.tree import Value, shown
from mltswitch.targets import Session, targets

DEFAULT_KNOWN_HOSTS: Final = "~/.ssh/known_hosts"
SSH_PORT: Final = 22
GRPC_PORT: Final = 9559
"""P4Runtime's (IANA, p4runtime)."""
THRIFT_PORT: Final = 9090
"""BMv2's default."""
OWN_PREFIX: Final = "mltswitch_"
CLEAR_TEXT_PASSWORDS: Final = (
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_become_password",
    "ansible_become_pass",
    "ansible_sudo_pass",
)
UNSUPPORTED: Final = ("ansible_group_priority",)
"""Would change the precedence that this loader documents."""
MAXIMUM_PATH_CHARACTERS: Final = 4096
SHELL_CHARACTERS: Final = frozenset("\"'`$;&|<>")
"""No file is found by them here: mltswitch asks no shell, and a variable stays as it is written."""
NEVER_SHOWN: Final = ("mltswitch_password_env",)
"""People put a password where its variable's name belongs; an error message must not print it."""


def _plain_text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("is not text")  # noqa: TRY004  (pydantic wants ValueError)
    if "{{" in value or "{%" in value:
        raise ValueError("is a Jinja expression, which mltswitch does not evaluate")
    if not value.isprintable():
        raise ValueError("has a control character or a line end in it")
    return value


def _whole_number(value: object) -> object:
    if isinstance(value, bool | float):
        raise ValueError("is no whole number")  # noqa: TRY004  (pydantic wants ValueError)
    return value if isinstance(value, int) else _plain_text(value)


def _whole_path(text: str) -> str:
    if text.startswith(UNIX_SOCKET) and not text.startswith(f"{UNIX_SOCKET}/"):
        raise ValueError("is no Unix socket by its whole path")
    return text


def _yes_or_no(value: object) -> object:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")  # noqa: TRY004  (pydantic wants ValueError)
    return value


def _file_name(text: str) -> str:
    if not 0 < len(text) <= MAXIMUM_PATH_CHARACTERS:
        raise ValueError("is empty or too long for a file name")
    if SHELL_CHARACTERS & set(text):
        raise ValueError("has a quote, or a character that a shell would read")
    try:
        return str(Path(text).expanduser())
    except RuntimeError:
        raise ValueError("names a home directory that is not known") from None


_Name = Annotated[str, BeforeValidator(_plain_text), Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
_Address = Annotated[
    str,
    BeforeValidator(_plain_text),
    Field(pattern=r"^(?:[A-Za-z0-9:][A-Za-z0-9:._%-]{0,252}|unix:/[A-Za-z0-9/._-]{1,106})$"),
    AfterValidator(_whole_path),
]
"""Or gRPC's name for a Unix socket (unix(7): a path of at most 107 bytes)."""
_User = Annotated[str, BeforeValidator(_plain_text), Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,63}$")]
_Port = Annotated[int, BeforeValidator(_whole_number), Field(ge=1, le=65535)]
_PortOrNone = Annotated[int, BeforeValidator(_whole_number), Field(ge=0, le=65535)]
_DeviceId = Annotated[int, BeforeValidator(_whole_number), Field(ge=1, le=2**64 - 1)]
_YesOrNo = Annotated[bool, BeforeValidator(_yes_or_no)]
_File = Annotated[str, BeforeValidator(_plain_text), AfterValidator(_file_name)]
_VariableName = Annotated[str, BeforeValidator(_plain_text), Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]


class Used(BaseModel):
    """Every variable that mltswitch reads; all others may hold anything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ansible_host: _Address | None = None
    ansible_port: _Port | None = None
    ansible_user: _User | None = None
    ansible_ssh_private_key_file: _File | None = None
    ansible_network_os: _Name | None = None
    mltswitch_platform: _Name | None = None
    mltswitch_known_hosts_file: _File = Field(default=DEFAULT_KNOWN_HOSTS, validate_default=True)
    mltswitch_switch: _Name | None = None
    mltswitch_password_env: _VariableName | None = None
    mltswitch_device_id: _DeviceId = 1
    mltswitch_thrift_port: _PortOrNone | None = None
    mltswitch_plaintext_grpc: _YesOrNo = False


def device_from(
    host: str, variables: Mapping[str, Value], groups: tuple[str, ...], main_file: Path
) -> Device:
    """One device from its variables; raises UserInputError naming file, host and variable."""
    _refuse(host, variables)
    used = _checked(host, variables, main_file)
    platform = used.mltswitch_platform or used.ansible_network_os
    if platform is None:
        raise UserInputError(
            "has no platform: neither mltswitch_platform nor ansible_network_os is set",
            where=f"{main_file}: {host}",
            expected=f"one of {', '.join(targets())}",
            hint="set mltswitch_platform for the host or for one of its groups",
        )
    if platform not in targets():
        name = "mltswitch_platform" if used.mltswitch_platform else "ansible_network_os"
        raise UserInputError(
            f"unknown platform {platform!r}",
            where=f"{variables[name].file}: {host}: {name}",
            expected=f"one of {', '.join(targets())}",
            hint="" if used.mltswitch_platform else "set mltswitch_platform beside it",
        )
    grpc = targets()[platform].session is Session.P4RUNTIME
    if used.ansible_user is None and not grpc:
        raise UserInputError("is missing", where=f"{main_file}: {host}: ansible_user")
    address = used.ansible_host or host
    where = f"{variables['ansible_host'].file if used.ansible_host else main_file}: {host}: ansible_host"
    if grpc:
        _check_plaintext(address, used, where)
    elif address.startswith(UNIX_SOCKET):
        raise UserInputError(f"is a Unix socket, and platform {platform} is reached by SSH", where=where)
    folder = main_file.parent
    key_file = used.ansible_ssh_private_key_file
    return Device(
        name=host,
        platform=platform,
        switch=used.mltswitch_switch or host,
        address=address,
        port=used.ansible_port or (GRPC_PORT if grpc else SSH_PORT),
        user=used.ansible_user or "",
        key_file=None if key_file is None else folder / key_file,
        known_hosts_file=folder / used.mltswitch_known_hosts_file,
        password_variable=used.mltswitch_password_env,
        groups=groups,
        device_id=used.mltswitch_device_id,
        thrift_port=_thrift_port(address, used) if grpc else 0,
    )


def _check_plaintext(address: str, used: Used, where: str) -> None:
    """Whoever reaches BMv2 commands it, and nothing is encrypted: so it stays on this machine, by default."""
    if used.mltswitch_plaintext_grpc or address.startswith(UNIX_SOCKET) or _is_loopback(address):
        return
    raise UserInputError(
        f"{address} is another machine, and P4Runtime is spoken without TLS or any password",
        where=where,
        expected="an address of 127.0.0.0/8, ::1, localhost or unix:/path",
        hint="where nobody else reaches the link between: mltswitch_plaintext_grpc: true",
    )


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _thrift_port(address: str, used: Used) -> int:
    """Behind a Unix socket the switch may stand in another network namespace, where no port is reached."""
    if used.mltswitch_thrift_port is not None:
        return used.mltswitch_thrift_port
    return 0 if address.startswith(UNIX_SOCKET) else THRIFT_PORT


def _refuse(host: str, variables: Mapping[str, Value]) -> None:
    for name in CLEAR_TEXT_PASSWORDS:
        if name in variables:
            raise UserInputError(
                "a password does not belong into an inventory",
                where=f"{variables[name].file}: {host}: {name}",
                hint="use a key, or name an environment variable in mltswitch_password_env",
            )
    for name, value in variables.items():
        if name in UNSUPPORTED or (name.startswith(OWN_PREFIX) and name not in Used.model_fields):
            own = [field for field in Used.model_fields if field.startswith(OWN_PREFIX)]
            raise UserInputError(
                "is not a variable that mltswitch knows",
                where=f"{value.file}: {host}: {shown(name)}",
                expected=f"one of {', '.join(own)}" if name.startswith(OWN_PREFIX) else "",
            )


def _checked(host: str, variables: Mapping[str, Value], main_file: Path) -> Used:
    given = {name: variables[name].value for name in Used.model_fields if name in variables}
    try:
        return Used.model_validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        file = variables[name].file if name in variables else main_file
        raise UserInputError(
            _told(name, problem["type"], problem["msg"], given), where=f"{file}: {host}: {name}"
        ) from None


def _told(name: str, kind: str, message: str, given: Mapping[str, object]) -> str:
    if kind == "string_pattern_mismatch":
        message = "has characters that have no place there, or is too long"
    text = message.removeprefix("Value error, ")
    return text if name in NEVER_SHOWN else f"{text}, not {shown(given[name])}"
