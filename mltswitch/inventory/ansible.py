"""Ansible's own loader, run as a program: ansible-core is under the GPL, and nothing of it is imported.

It gets the user's environment, so that settings for Vault or precedence apply. Settings that the working
folder could decide are closed: `ansible.cfg` is read where ANSIBLE_CONFIG names it, variables beside a
playbook where ANSIBLE_PLAYBOOK_DIR does. Programs and plugins of an inventory run only where
ANSIBLE_INVENTORY_ENABLED names them.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Final

from mltswitch.documents import parse_yaml, read_text
from mltswitch.errors import UserInputError
from mltswitch.inventory.listing import YAML_SUFFIXES, Listed, own_documents

SECONDS: Final = 25.0
MAXIMUM_OUTPUT_BYTES: Final = 64 * 2**20
MOST_HOSTS: Final = 250_000
"""The most hosts of all inventories together; ranges are counted before Ansible expands them."""
_RANGE: Final = re.compile(r"\[(?:([0-9]+):([0-9]+)|([A-Za-z]):([A-Za-z]))(?::([1-9][0-9]*))?\]")
_RANGES: Final = re.compile(rf"(?<![\w.-])[\w.-]*(?:{_RANGE.pattern}[\w.-]*)+")
_MOST_COUNTED: Final = 10**18
"""Hosts that ranges have where they have more, and where a number in them has as many digits as this one."""
_VARIABLES: Final = {"group_vars", "host_vars"}
_SECTION: Final = re.compile(r"\[([^\]]+)\]\s*(?:[#;].*)?")
_BARE_KEY: Final = re.compile(r"\s+[^\s#].*:\s*+(?:\{\}|null|~)?\s*(?:#.*)?")
"""Of YAML: a key without a value is a host or a group."""
LIMITS: Final = 'ulimit -v 4194304; ulimit -f 4096; exec "$@"'
"""Shell line that limits the loader to 4 GiB of addresses, because YAML aliases multiply a small file to any
size, and 2 MiB of errors."""
SETTINGS: Final = {
    "ANSIBLE_INVENTORY_ENABLED": "yaml,toml,ini",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
    "ANSIBLE_TRANSFORM_INVALID_GROUP_CHARS": "ignore",
    "ANSIBLE_DEPRECATION_WARNINGS": "false",
    "ANSIBLE_NOCOLOR": "true",
    "ANSIBLE_CONFIG": "",
}
"""Environment variables for the loader that apply where the user's environment does not set them."""
FORCED: Final = {"ANSIBLE_INVENTORY_EXPORT": "false", "ANSIBLE_VERBOSITY": "0", "ANSIBLE_DEBUG": "false"}
"""Environment variables that override the user's: an export would leave groups their variables, and the
others would print among the JSON."""
UNHONOURED: Final = (
    r"(?:remote_user|remote_port|private_key_file|ssh_(?:common_|extra_)?args|become(?:_\w+)?)"
)
"""Pattern of connection settings in ansible.cfg and ANSIBLE_ variables, which have no effect here: the
inventory alone decides how to connect."""
VAULT: Final = "$ANSIBLE_VAULT;"
_WARNING: Final = re.compile(
    r"\[WARNING\]: (?!Found variable using reserved)(.+)(?:\nOrigin: (.+):\d+:\d+$)?", re.M
)
"""Ansible warns where it ignores something, which is refused here; names that plays reserve do no harm."""
_QUOTED: Final = re.compile(r",? ?\b(?:got|found|supplied):? .*")
"""Ansible quotes what stands in a file, which may be a secret."""


def ansible_program(name: str = "ansible-inventory") -> str | None:
    """Path of an Ansible program, beside this Python or in the PATH; None: ansible-core is not installed."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def read_ansible_inventory(program: str, paths: Sequence[Path]) -> dict[str, Listed]:
    """Host → its variables and groups, with Ansible's precedence; raises UserInputError."""
    _check_size(paths)
    own = [f"^{re.escape(file.name)}$" for path in paths if path.is_dir() for file in own_documents(path)]
    ignored = {"ANSIBLE_INVENTORY_IGNORE_REGEX": "|".join(own)} if own else {}
    sources = [argument for path in paths for argument in ("-i", str(path.absolute()))]
    output, errors = _run([program, *sources, "--list"], ignored)
    if output is None:
        raise _explained(errors, paths)
    for warning, file in _WARNING.findall(errors):
        # Ansible takes for a duplicate what overrides a merged key (<<), too.
        if "duplicate mapping key" not in warning or "<<" not in read_text(Path(file)):
            raise UserInputError(_QUOTED.sub("", warning), where=file or ", ".join(map(str, paths)))
    try:
        data = json.loads(output)
    except ValueError:
        said = output.strip().splitlines()[:1]
        raise UserInputError(
            f"{program} answers with what is no JSON: {said[0][:80] if said else 'nothing'!r}",
            where=", ".join(map(str, paths)),
            hint="is one of Ansible's debugging variables set?",
        ) from None
    parents: dict[str, set[str]] = {}
    direct: dict[str, set[str]] = {}
    for group, body in data.items():
        for child in body.get("children", ()):
            parents.setdefault(child, set()).add(group)
        for host in body.get("hosts", ()):
            direct.setdefault(host, set()).add(group)
    variables = data["_meta"]["hostvars"]
    return {
        host: Listed(variables.get(host, {}), _with_parents(groups, parents))
        for host, groups in direct.items()
    }


def _check_size(paths: Sequence[Path]) -> None:
    """Raise UserInputError where inventories name more than MOST_HOSTS hosts, without expanding a range."""
    total = 0
    for path in paths:
        own = own_documents(path) if path.is_dir() else set()
        for file in sorted(path.rglob("*")) if path.is_dir() else (path,):
            parts = file.relative_to(path).parts
            is_hidden = any(part.startswith(".") for part in parts)
            if file.is_file() and file not in own and not is_hidden and not _VARIABLES.intersection(parts):
                with suppress(OSError), file.open(encoding="utf-8", errors="replace") as lines:
                    total += _hosts_of(lines, file, total)


def _hosts_of(lines: Iterable[str], file: Path, before: int) -> int:
    """About how many hosts a file names; raises UserInputError at the one that is too many."""
    is_yaml, holds_hosts, count = file.suffix in YAML_SUFFIXES, True, 0
    for number, line in enumerate(lines, start=1):
        if not is_yaml and (section := _SECTION.fullmatch(line.strip())):
            holds_hosts = not section[1].endswith((":vars", ":children"))
            continue
        if not holds_hosts or not (text := line.strip()) or text[0] in "#;":
            continue
        ranges = [found[0] for found in _RANGES.finditer(line if is_yaml else text.split()[0])]
        more = min(_MOST_COUNTED, sum(prod(map(_length, _RANGE.finditer(name))) for name in ranges))
        count += more or (not is_yaml or bool(_BARE_KEY.fullmatch(line)))
        if before + count > MOST_HOSTS:
            said = f", {ranges[0][:80]} alone {more:,}" if more > MOST_HOSTS else ""
            raise UserInputError(
                f"names {'at least ' * (not said)}{before + count:,} hosts{said}",
                where=f"{file}:{number}",
                expected=f"at most {MOST_HOSTS:,} hosts in all inventories together (MOST_HOSTS)",
                hint="name with -i only the files that have the fabric's switches",
            )
    return count


def _length(found: re.Match[str]) -> int:
    """Names that a range stands for: numbers or letters, both ends included."""
    if max(len(each or "") for each in found.groups()) >= len(str(_MOST_COUNTED)):
        return _MOST_COUNTED
    first, last = (int(found[1]), int(found[2])) if found[1] else (ord(found[3]), ord(found[4]))
    return max(0, (last - first) // int(found[5] or 1) + 1)


def _with_parents(groups: Iterable[str], parents: Mapping[str, set[str]]) -> tuple[str, ...]:
    found: set[str] = set()
    unseen = [*groups]
    while unseen:
        group = unseen.pop()
        unseen += parents.get(group, set()) - found
        found.add(group)
    return tuple(sorted(found))


def decrypted(text: str, *, where: str) -> str:
    """The clear text of a value that Ansible Vault encrypted, with the password from Ansible's settings."""
    program = ansible_program("ansible-vault")
    output = _run([program, "decrypt", "--output", "-"], {}, text)[0] if program else None
    if output is None:
        hint = "ANSIBLE_VAULT_PASSWORD_FILE names the file of the vault's password"
        raise UserInputError("ansible-vault does not decrypt it", where=where, hint=hint)
    return output.removesuffix("\n")


def _run(command: Sequence[str], settings: Mapping[str, str], text: str = "") -> tuple[str | None, str]:
    """(standard output, or None where it failed; standard error); time, memory and output are bounded."""
    with tempfile.TemporaryDirectory(prefix="mltswitch-") as scratch, tempfile.TemporaryFile() as errors:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment = {**SETTINGS, "ANSIBLE_PLAYBOOK_DIR": scratch, **inherited, **settings}
        environment |= {"ANSIBLE_LOCAL_TEMP": scratch, "LC_ALL": "C.UTF-8", **FORCED}
        environment["ANSIBLE_CONFIG"] = _configuration(environment["ANSIBLE_CONFIG"], Path(scratch))
        with subprocess.Popen(
            ["/bin/sh", "-c", LIMITS, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
        ) as process:
            is_late = threading.Event()

            def end() -> None:
                is_late.set()
                process.kill()

            watchdog = threading.Timer(SECONDS, end)
            watchdog.start()
            if process.stdin is not None and process.stdout is not None:  # they are pipes
                with process.stdin as stdin:
                    stdin.write(text.encode())
                output = process.stdout.read(MAXIMUM_OUTPUT_BYTES + 1)
            if len(output) > MAXIMUM_OUTPUT_BYTES:
                process.kill()
        watchdog.cancel()
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
    program = Path(command[0]).name
    if is_late.is_set():
        said = (
            f"{program} has not ended after {SECONDS:g} s, its limit of time; fewer hosts or variables help"
        )
    elif len(output) > MAXIMUM_OUTPUT_BYTES:
        said = f"{program} prints more than {MAXIMUM_OUTPUT_BYTES // 2**20} MiB, its limit of output"
    elif process.returncode and "MemoryError" in said:
        said = f"{program} needs more than 4 GiB, its limit of memory"
    elif process.returncode < 0:
        said = f"{program} was ended by {signal.Signals(-process.returncode).name}"
    return output.decode("utf-8", "replace") if process.returncode == 0 else None, said


def _configuration(named: str, scratch: Path) -> str:
    """The ansible.cfg that the user names, else an empty one; refuses what is not honoured."""
    hint = "say it in the inventory's variables"
    if set_here := [
        name for name in sorted(os.environ) if re.fullmatch(f"ANSIBLE_{UNHONOURED.upper()}", name)
    ]:
        raise UserInputError("is not honoured", where=set_here[0], hint=hint)
    if named:
        if found := re.search(rf"^[ \t]*({UNHONOURED})\s*[=:]", read_text(Path(named)), re.MULTILINE):
            raise UserInputError("is not honoured", where=f"{named}: {found[1]}", hint=hint)
        return named
    for name in ("ansible.cfg", "~/.ansible.cfg", "/etc/ansible/ansible.cfg"):
        path = Path(os.path.expanduser(name))  # noqa: PTH111 -- Path.expanduser fails without a home
        if path.is_file() and re.search(r"^[ \t]*[^\s#;\[]", read_text(path), re.MULTILINE):
            raise UserInputError(
                "Ansible would read these settings",
                where=str(path),
                hint="set ANSIBLE_CONFIG to this file to have them read, or to an empty .cfg file",
            )
    (scratch / "ansible.cfg").touch()
    return str(scratch / "ansible.cfg")


def _explained(errors: str, paths: Sequence[Path]) -> UserInputError:
    """What Ansible says on many lines, as one line that names the file."""
    source = re.search(r"Completely failed to parse inventory source (.+)", errors)
    if source is None:
        # Of a file of variables, Ansible tells neither the name nor the line.
        folders = {path if path.is_dir() else path.parent for path in paths}
        files = [file for folder in folders for file in folder.glob("*_vars/**/*") if file.is_file()]
        faults = [_fault(file) for file in sorted(files) if file.suffix in {"", *YAML_SUFFIXES}]
        said = re.search(r"\[ERROR\]: (.+)", errors)
        what = _QUOTED.sub("", said[1]) if said else errors
        return next(filter(None, faults), UserInputError(what, where=", ".join(map(str, paths))))
    file = Path(source[1])
    plugin = {".toml": "toml", **dict.fromkeys(YAML_SUFFIXES, "yaml")}.get(file.suffix, "ini")
    fault = _fault(file) if plugin == "yaml" and file.is_file() else None
    said = re.search(rf"inventory with '{plugin}' plugin: (?:Failed to parse inventory: )?(.+)", errors)
    runs = "programs and plugins run only where ANSIBLE_INVENTORY_ENABLED names them (script, auto)"
    return fault or UserInputError(
        _QUOTED.sub("", said[1]) if said else "is no inventory that Ansible reads",
        where=str(file),
        hint=runs if os.access(file, os.X_OK) or "Plugin configuration" in errors else "",
    )


def _fault(file: Path) -> UserInputError | None:
    """What is wrong with one YAML file: its syntax, or that its vault does not open."""
    try:
        text = read_text(file)
        if text.startswith(VAULT):
            decrypted(text, where=str(file))
        else:
            parse_yaml(text, where=str(file))
    except UserInputError as error:
        return None if re.search(r"the tag '!(vault|unsafe)|merge key", error.what) else error
    return None
