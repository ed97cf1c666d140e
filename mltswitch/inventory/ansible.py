"""Ansible's own loader, run as a program: ansible-core is under the GPL, and nothing of it is imported.

The user's environment holds for it, so that settings for Vault or precedence do. What would let the folder in
which one stands decide is closed: `ansible.cfg` is read where ANSIBLE_CONFIG names it, variables beside a
playbook where ANSIBLE_PLAYBOOK_DIR does. Programs and plugins of an inventory run only where
ANSIBLE_INVENTORY_ENABLED names them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from mltswitch.documents import parse_yaml, read_text
from mltswitch.errors import UserInputError
from mltswitch.inventory.listing import Listed

SECONDS: Final = 25.0
MAXIMUM_OUTPUT_BYTES: Final = 64 * 2**20
LIMITS: Final = 'ulimit -v 4194304; ulimit -f 4096; exec "$@"'
"""4 GiB of addresses, because YAML aliases multiply a small file to any size, and 2 MiB of errors."""
SETTINGS: Final = {
    "ANSIBLE_INVENTORY_ENABLED": "yaml,toml,ini",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
    "ANSIBLE_TRANSFORM_INVALID_GROUP_CHARS": "ignore",
    "ANSIBLE_DEPRECATION_WARNINGS": "false",
    "ANSIBLE_NOCOLOR": "true",
    "ANSIBLE_CONFIG": "",
}
"""Where the user's environment says nothing else."""
FORCED: Final = {"ANSIBLE_INVENTORY_EXPORT": "false", "ANSIBLE_VERBOSITY": "0", "ANSIBLE_DEBUG": "false"}
"""Whatever it says: an export leaves groups their variables, and the others print among the JSON."""
UNHONOURED: Final = (
    r"(?:remote_user|remote_port|private_key_file|ssh_(?:common_|extra_)?args|become(?:_\w+)?)"
)
"""Settings of ansible.cfg, and ANSIBLE_ variables, about connecting; here the inventory alone decides it."""
YAML_SUFFIXES: Final = (".yaml", ".yml", ".json")
VAULT: Final = "$ANSIBLE_VAULT;"
_OWN_DOCUMENT: Final = re.compile(r'^\s*\{?\s*"?schema"?\s*:\s*"?mltswitch/', re.MULTILINE)
_WARNING: Final = re.compile(
    r"\[WARNING\]: (?!Found variable using reserved)(.+)(?:\nOrigin: (.+):\d+:\d+$)?", re.M
)
"""Ansible warns where it ignores something, which is refused here; names that plays reserve do no harm."""
_QUOTED: Final = re.compile(r",? ?\b(?:got|found|supplied):? .*")
"""Ansible quotes what stands in a file, which may be a secret."""


def ansible_program(name: str = "ansible-inventory") -> str | None:
    """Where ansible-core is installed: beside this Python, or in the PATH."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def read_ansible_inventory(program: str, paths: Sequence[Path]) -> dict[str, Listed]:
    """Hosts of one or more inventories, with Ansible's precedence; raises UserInputError."""
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


def _with_parents(groups: Iterable[str], parents: Mapping[str, set[str]]) -> tuple[str, ...]:
    found: set[str] = set()
    unseen = [*groups]
    while unseen:
        group = unseen.pop()
        unseen += parents.get(group, set()) - found
        found.add(group)
    return tuple(sorted(found))


def own_documents(folder: Path) -> list[Path]:
    """Our own documents in a folder (a fabric, a plan), which Ansible would take for inventories."""
    files = [file for file in folder.iterdir() if file.suffix in YAML_SUFFIXES and file.is_file()]
    return [
        file for file in files if _OWN_DOCUMENT.search(file.read_bytes()[:4096].decode("utf-8", "replace"))
    ]


def decrypted(text: str, *, where: str) -> str:
    """A value that Ansible Vault encrypted, by the password that Ansible's own settings name."""
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
            watchdog = threading.Timer(SECONDS, process.kill)
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
    if process.returncode < 0:
        said = f"it has not ended after {SECONDS:g} s, or prints more than {MAXIMUM_OUTPUT_BYTES} bytes"
    return output.decode("utf-8", "replace") if process.returncode == 0 else None, said


def _configuration(named: str, scratch: Path) -> str:
    """The ansible.cfg that the user names, else an empty one; refuses what is not honoured."""
    hint = "say it in the inventory's variables"
    if set_here := [
        name for name in sorted(os.environ) if re.fullmatch(f"ANSIBLE_{UNHONOURED.upper()}", name)
    ]:
        raise UserInputError("is not honoured", where=set_here[0], hint=hint)
    if named:
        if found := re.search(rf"^\s*({UNHONOURED})\s*[=:]", read_text(Path(named)), re.MULTILINE):
            raise UserInputError("is not honoured", where=f"{named}: {found[1]}", hint=hint)
        return named
    for path in (Path("ansible.cfg"), Path.home() / ".ansible.cfg", Path("/etc/ansible/ansible.cfg")):
        if path.is_file() and re.search(r"^\s*[^\s#;\[]", read_text(path), re.MULTILINE):
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
