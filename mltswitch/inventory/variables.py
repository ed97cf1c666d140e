"""Checks the inventory variables that mltswitch uses, and makes a `Device` of them."""

import getpass
import re
import shlex
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from mltswitch.documents import plain_words
from mltswitch.errors import UserInputError, did_you_mean
from mltswitch.inventory.ansible import VAULT
from mltswitch.inventory.device import UNIX_SOCKET, Device, JumpHost, Secret
from mltswitch.inventory.listing import Listed, Variables, shown
from mltswitch.targets import SessionKind, targets

SSH_PORT: Final = 22
GRPC_PORTS: Final = {SessionKind.P4RUNTIME: 9559, SessionKind.GNMI: 9339}
"""Default ports of gRPC sessions (IANA: p4runtime and gnmi-gnoi)."""
THRIFT_PORT: Final = 9090
"""BMv2's default thrift port."""
OWN_PREFIX: Final = "mltswitch_"
ALIASES: Final = {
    "ansible_ssh_host": "ansible_host",
    "ansible_ssh_port": "ansible_port",
    "ansible_ssh_user": "ansible_user",
    "ansible_private_key_file": "ansible_ssh_private_key_file",
    "ansible_ssh_pass": "ansible_password",
    "ansible_ssh_password": "ansible_password",
    "ansible_become_pass": "ansible_become_password",
    "ansible_sudo_pass": "ansible_become_password",
    "ansible_ssh_host_key_checking": "ansible_host_key_checking",
    "ansible_paramiko_host_key_checking": "ansible_host_key_checking",
}
"""Other spelling of a variable → the variable; two that differ in value are refused."""
ABOUT_CONNECTING: Final = re.compile(
    r"ansible_(ssh|become|sudo|su|paramiko|libssh|connection|proxy|private_key|host_key|remote_user|remote_port)(_|$)"
)
"""Pattern of variable names that change how to connect; one that mltswitch does not use is refused."""
NO_MATTER: Final = ("ansible_ssh_pipelining", "ansible_ssh_retries", "ansible_ssh_transfer_method")
NEVER_SHOWN: Final = ("_env", "_password")
"""Endings of variable names whose values no error prints: a password may be there by mistake."""
SSH_ARGUMENTS: Final = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
MAXIMUM_PATH_CHARACTERS: Final = 4096
SHELL_CHARACTERS: Final = frozenset("\"'`$;&|<>")
"""Characters refused in file names: mltswitch uses no shell to expand them."""


def _plain(value: object) -> object:
    """No structure, no Jinja, one line; `!vault` values are listed as structures."""
    if isinstance(value, dict | list | float) or value is None:
        raise ValueError("is neither text nor a whole number")
    if isinstance(value, str) and ("{{" in value or "{%" in value):
        raise ValueError("is a Jinja expression, which mltswitch does not evaluate")
    if isinstance(value, str) and not value.isprintable():
        raise ValueError("has a control character or a line end in it")
    return value


def _whole_number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("is no whole number")  # noqa: TRY004  (pydantic wants ValueError)
    return _plain(value)


def _whole_path(text: str) -> str:
    if text.startswith(UNIX_SOCKET) and not text.startswith(f"{UNIX_SOCKET}/"):
        raise ValueError("is no Unix socket by its whole path")
    return text


def _file_name(text: str) -> str:
    if not 0 < len(text) <= MAXIMUM_PATH_CHARACTERS:
        raise ValueError("is empty or too long for a file name")
    if SHELL_CHARACTERS & set(text):
        raise ValueError("has a quote, or a character that a shell would read")
    try:
        return str(Path(text).expanduser())
    except RuntimeError:
        raise ValueError("names a home directory that is not known") from None


def _encrypted(value: object) -> object:
    """Ansible lists a value under `!vault` so; one in clear text looks like any other text."""
    if isinstance(value, dict) and str(value.get("__ansible_vault", "")).startswith(VAULT):
        return value["__ansible_vault"]
    raise ValueError(
        "a password in clear text does not belong into an inventory: use a key, name an environment variable "
        "in mltswitch_password_env or mltswitch_become_password_env, or use ansible-vault encrypt_string"
    )


_Text = Annotated[str, BeforeValidator(_plain)]
_Name = Annotated[_Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
_Address = Annotated[
    _Text,
    Field(pattern=r"^(?:[A-Za-z0-9:][A-Za-z0-9:._%-]{0,252}|unix:/[A-Za-z0-9/._-]{1,106})$"),
    AfterValidator(_whole_path),
]
"""Or gRPC's name for a Unix socket (unix(7): a path of at most 107 bytes)."""
_Serial = Annotated[_Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9:._/-]{0,63}$")]
_Model = Annotated[_Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 +()._/-]{0,63}$")]
"""The vendor's words: `MT1822K07815` or a MAC address; `DCS-7050CX3-32S-F`, `Cumulus Linux 5.9.2`."""
_User = Annotated[_Text, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,63}$")]
_Number = Annotated[int, BeforeValidator(_whole_number)]
_Port = Annotated[_Number, Field(ge=1, le=65535)]
_YesOrNo = Annotated[bool, BeforeValidator(_plain)]
_File = Annotated[_Text, AfterValidator(_file_name)]
_VariableName = Annotated[_Text, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
_Encrypted = Annotated[str, BeforeValidator(_encrypted)]


class Used(BaseModel):
    """Every variable that mltswitch reads; all others may hold anything, unless they are about connecting."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    inventory_hostname: _Name
    ansible_host: _Address | None = None
    ansible_port: _Port | None = None
    ansible_user: _User | None = None
    ansible_ssh_private_key_file: _File | None = None
    ansible_password: _Encrypted | None = None
    ansible_network_os: _Name | None = None
    ansible_connection: Literal[
        "ssh",
        "smart",
        "paramiko",
        "paramiko_ssh",
        "network_cli",
        "ansible.builtin.ssh",
        "ansible.builtin.paramiko_ssh",
        "ansible.netcommon.network_cli",
        "ansible.netcommon.libssh",
    ] = "ssh"
    ansible_host_key_checking: Literal[True] = True
    ansible_ssh_timeout: Annotated[_Number, Field(ge=1, le=600)] = 10
    ansible_become: _YesOrNo = False
    ansible_become_method: Literal["sudo", "ansible.builtin.sudo", "enable", "ansible.netcommon.enable"] = (
        "sudo"
    )
    ansible_become_user: Literal["root"] = "root"
    ansible_become_password: _Encrypted | None = None
    jump_hosts: tuple[tuple[_Address, _Port, _User | Literal[""]], ...] = ()
    mltswitch_platform: _Name | None = None
    mltswitch_known_hosts_file: _File = Field(default="~/.ssh/known_hosts", validate_default=True)
    mltswitch_switch: _Name | None = None
    mltswitch_hostname: _Name | None = None
    mltswitch_serial: _Serial | None = None
    mltswitch_model: _Model | None = None
    mltswitch_release: _Model | None = None
    mltswitch_password_env: _VariableName | None = None
    mltswitch_key_passphrase_env: _VariableName | None = None
    mltswitch_become_password_env: _VariableName | None = None
    mltswitch_device_id: Annotated[_Number, Field(ge=1, le=2**64 - 1)] = 1
    mltswitch_thrift_port: Annotated[_Number, Field(ge=0, le=65535)] | None = None
    mltswitch_plaintext_grpc: _YesOrNo = False
    mltswitch_ca_file: _File | None = None


def device_from(host: str, listed: Listed, where: str, folder: Path | None) -> Device:
    """The device that these variables describe; raises UserInputError naming `where`, and the variable.

    Relative paths start at `folder`; None (several inventories): they are refused.
    """
    used = _checked(where, _gathered(where, listed.variables) | {"inventory_hostname": host})
    platform = _platform(where, used)
    session = targets()[platform].session
    address = used.ansible_host or host
    logs_in = session is not SessionKind.P4RUNTIME
    if not logs_in:
        _check_plaintext(address, used, where)
    elif not session.is_grpc:
        _check_ssh(address, platform, session, used, where)
    key_file = None if session.is_grpc else used.ansible_ssh_private_key_file
    return Device(
        name=host,
        platform=platform,
        switch=used.mltswitch_switch or host,
        address=address,
        port=used.ansible_port or GRPC_PORTS.get(session, SSH_PORT),
        user=(used.ansible_user or "") if logs_in else "",
        key_file=None if key_file is None else _absolute(key_file, folder, where),
        known_hosts_file=_absolute(used.mltswitch_known_hosts_file, folder, where),
        password=_secret(used, "mltswitch_password_env", "ansible_password", where),
        groups=listed.groups,
        device_id=used.mltswitch_device_id,
        thrift_port=0 if logs_in else _thrift_port(address, used),
        plaintext=used.mltswitch_plaintext_grpc,
        ca_file=None if used.mltswitch_ca_file is None else _absolute(used.mltswitch_ca_file, folder, where),
        passphrase=_secret(used, "mltswitch_key_passphrase_env", "", where),
        jump_hosts=tuple(
            JumpHost(hop, port, user or getpass.getuser()) for hop, port, user in used.jump_hosts
        ),
        connect_seconds=used.ansible_ssh_timeout,
        become=used.ansible_become,
        hostname=used.mltswitch_hostname or "",
        serial=used.mltswitch_serial or "",
        model=used.mltswitch_model or "",
        release=used.mltswitch_release or "",
        become_password=_secret(used, "mltswitch_become_password_env", "ansible_become_password", where),
    )


def _gathered(where: str, variables: Variables) -> Variables:
    """The variables that are used, by one spelling each, with what the arguments of ssh say."""
    given: Variables = {}
    for name, value in variables.items():
        canonical = ALIASES.get(name, name)
        if canonical.startswith(("ansible_", OWN_PREFIX)) and canonical in Used.model_fields:
            if value is not None and given.setdefault(canonical, value) != value:
                other = next(
                    each for each in variables if each != name and ALIASES.get(each, each) == canonical
                )
                raise UserInputError(f"contradicts {other}, which means the same", where=f"{where}: {name}")
        elif name.startswith(OWN_PREFIX):
            own = ", ".join(field for field in Used.model_fields if field.startswith(OWN_PREFIX))
            raise UserInputError(
                "is not a variable that mltswitch knows",
                where=f"{where}: {shown(name)}",
                expected=f"one of {own}",
            )
        elif ABOUT_CONNECTING.match(name) and name not in (*NO_MATTER, *SSH_ARGUMENTS):
            raise UserInputError(
                "is about connecting, and mltswitch does not honour it", where=f"{where}: {name}"
            )
    for name in SSH_ARGUMENTS:
        try:
            said = ssh_options(str(_plain(variables.get(name) or "")))
        except ValueError as error:
            raise UserInputError(str(error), where=f"{where}: {name}") from None
        for variable, value in said.items():
            if str(given.setdefault(variable, value)) != str(value):
                raise UserInputError(f"contradicts {variable}", where=f"{where}: {name}")
    return given


def _checked(where: str, given: Variables) -> Used:
    problems: dict[str, str] = {}
    try:
        return Used.model_validate(given)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            name = str(problem["loc"][0])
            problems.setdefault(name, _report(name, problem, given))
    name, first = next(iter(problems.items()))
    others = [": ".join(problem) for problem in problems.items()][1:]
    raise UserInputError("; ".join([first, *others]), where=f"{where}: {name}")


def _report(name: str, problem: ErrorDetails, given: Variables) -> str:
    text = plain_words(problem)
    if problem["type"] == "string_pattern_mismatch":
        text = "has characters that have no place there, or is too long"
    return text if name.endswith(NEVER_SHOWN) else f"{text}, not {shown(given.get(name))}"


def _platform_called(name: str) -> str:
    """Our name of a platform that Ansible calls so; any other name as it is."""
    return next((each.platform for each in targets().values() if name and each.network_os == name), name)


def foreign(variables: Variables, where: str) -> tuple[str, UserInputError] | None:
    """Why a host is no switch that mltswitch knows, in words and as an error; None: it is, or claims to
    be."""
    given = variables.get("ansible_network_os")
    known = isinstance(given, str) and _platform_called(given) in targets()
    if variables.get("mltswitch_platform") is not None or known:
        return None
    expected = f"one of {', '.join(targets())}"
    if not given:
        what = "has no platform: neither mltswitch_platform nor ansible_network_os is set"
        return "without a platform", UserInputError(what, where=where, expected=expected)
    return f"of platform {shown(given)}", UserInputError(
        f"unknown platform {shown(given)}",
        where=f"{where}: ansible_network_os",
        expected=expected,
        hint="set mltswitch_platform beside it",
    )


def _platform(where: str, used: Used) -> str:
    given = used.ansible_network_os or ""
    name = used.mltswitch_platform or _platform_called(given)
    if name not in targets():
        known = f"one of {', '.join(targets())}"
        raise UserInputError(
            f"unknown platform {name!r}{did_you_mean(name, targets())}",
            where=f"{where}: mltswitch_platform",
            expected=known,
        )
    return name


def _check_ssh(address: str, platform: str, session: SessionKind, used: Used, where: str) -> None:
    if used.ansible_user is None:
        hint = "say in the inventory as whom to log in, in group_vars for example"
        raise UserInputError("is missing", where=f"{where}: ansible_user", hint=hint)
    if address.startswith(UNIX_SOCKET):
        raise UserInputError(
            f"is a Unix socket, and platform {platform} is reached by SSH", where=f"{where}: ansible_host"
        )
    method = "sudo" if session is SessionKind.SHELL else "enable"
    if used.ansible_become and used.ansible_become_method.rpartition(".")[2] != method:
        raise UserInputError(
            f"is {used.ansible_become_method} on platform {platform}",
            where=f"{where}: ansible_become_method",
            expected=method,
        )


def _secret(used: Used, by_name: str, encrypted: str, where: str) -> Secret | None:
    name, text = getattr(used, by_name), getattr(used, encrypted, None)
    if name and text:
        raise UserInputError(
            f"stands beside {encrypted}", where=f"{where}: {by_name}", expected="one of them"
        )
    return Secret(by_name, name) if name else Secret(encrypted, text) if text else None


def _absolute(name: str, folder: Path | None, where: str) -> Path:
    if folder is None and not Path(name).is_absolute():
        raise UserInputError(f"{shown(name)} is relative to an inventory, and there are several", where=where)
    return Path(folder or "/") / name


def _check_plaintext(address: str, used: Used, where: str) -> None:
    """Whoever reaches BMv2 commands it, and nothing is encrypted: so it stays on this machine, by default."""
    if used.mltswitch_plaintext_grpc or address.startswith(UNIX_SOCKET) or _is_loopback(address):
        return
    raise UserInputError(
        f"{address} is another machine, and P4Runtime is spoken without TLS or any password",
        where=f"{where}: ansible_host",
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


HONOURED: Final = {
    "proxyjump": "jump_hosts",
    "identityfile": "ansible_ssh_private_key_file",
    "port": "ansible_port",
    "user": "ansible_user",
    "userknownhostsfile": "mltswitch_known_hosts_file",
    "connecttimeout": "ansible_ssh_timeout",
}
"""SSH option → the inventory variable with the same meaning."""
AS_ALWAYS: Final = {
    "stricthostkeychecking": r"yes",
    "identitiesonly": r"yes",
    "batchmode": r"yes",
    "forwardagent": r"no",
    "control(master|path|persist)|serveralive(interval|countmax)|tcpkeepalive|loglevel": r".*",
}
"""SSH option → the values that change nothing here: one connection for each device is kept open and alive."""
_LETTERS: Final = {"J": "ProxyJump", "i": "IdentityFile", "p": "Port", "l": "User"}
_HOP: Final = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@\s]+)@)?(?P<address>[^@:\s\[\]]+|\[[^\]]+\])(?::(?P<port>\d{1,5}))?"
)

Hop = tuple[str, str, str]
"""A jump host's address, port and user; an empty user is the one who runs mltswitch."""


def ssh_options(text: str) -> dict[str, str | list[Hop]]:
    """The options in a text of SSH arguments, by the names of `HONOURED`; raises ValueError for any other."""
    words = shlex.split(text)
    said: dict[str, str | list[Hop]] = {}
    while words:
        word = words.pop(0)
        letter, name = word[1:2], _LETTERS.get(word[1:2], "")
        value = word[2:] or (words.pop(0) if words and (name or letter == "o") else "")
        given = word if word.endswith(value) else f"{word} {value}"
        if letter == "o":
            name, _, value = re.sub(r"\s*[=\s]\s*", "=", value.strip(), count=1).partition("=")
        option = name.lower()
        if any(re.fullmatch(names, option) and re.fullmatch(fit, value) for names, fit in AS_ALWAYS.items()):
            continue
        if word[0] != "-" or option not in HONOURED or not value or re.search(r"[%\s]|^/dev/null$", value):
            raise ValueError(f"has {given!r}, which mltswitch does not honour")
        meant = _jump_hosts(value) if option == "proxyjump" else value
        if said.setdefault(HONOURED[option], meant) != meant:
            raise ValueError(f"says {name} twice")
    return said


def _jump_hosts(text: str) -> list[Hop]:
    matches = [_HOP.fullmatch(part) for part in text.split(",")] if text.lower() != "none" else []
    if None in matches:
        raise ValueError(f"has the ProxyJump {text!r}, which is not [user@]host[:port], separated by commas")
    hops = [match.groupdict("") for match in matches if match is not None]
    return [(hop["address"].strip("[]"), hop["port"] or "22", hop["user"]) for hop in hops]
