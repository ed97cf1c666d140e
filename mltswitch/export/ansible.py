"""A playbook with everything that it needs: Ansible alone, without mltswitch, brings a plan to the switches.

The plays are data, `plays/*.yaml`; what each platform's play uses and cannot do stands at its top, and in the
README. Secrets stay where they are: an environment variable is looked up when the playbook runs, and what
Ansible Vault encrypted is copied encrypted.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import yaml

from mltswitch.inventory import Device, Secret
from mltswitch.inventory.ansible import VAULT
from mltswitch.plan import Plan
from mltswitch.targets import SessionKind, Target, target_for

_PLAYS: Final = files("mltswitch.export").joinpath("plays")
_RULES: Final = """\
  gather_facts: false
  serial: "{{ wave | default('100%') }}"
  any_errors_fatal: false
  max_fail_percentage: 0
"""
"""Of every play: the first failure ends it, and the playbook with it."""


class _Vault(str):
    """A value that Ansible Vault encrypted."""


class _Dumper(yaml.SafeDumper):
    """YAML with `!vault`, as Ansible writes it."""


_Dumper.add_representer(_Vault, lambda dumper, text: dumper.represent_scalar("!vault", str(text), style="|"))


@dataclass(frozen=True, slots=True)
class Export:
    """The files to write, and the devices for which there are none."""

    files: Mapping[str, str]
    """Path below the playbook's folder → the text of the file."""
    left_out: tuple[str, ...]
    """Names of devices that Ansible does not reach."""


def ansible_files(devices: Iterable[Device], plan: Plan, rendered: Mapping[str, Mapping[str, str]]) -> Export:
    """The folder of a playbook for these devices.

    Args:
        devices: The devices to configure.
        plan: The plan that they are to run.
        rendered: Device → name and text of the files that `Target.render` gives.
    """
    texts: dict[str, str] = {}
    by_platform: dict[str, list[Device]] = {}
    left_out: list[str] = []
    for device in devices:
        target = target_for(device.platform, where=device.name)
        if target.session.is_grpc:
            left_out.append(device.name)
            continue
        by_platform.setdefault(device.platform, []).append(device)
        own = dict(rendered[device.name])
        if target.saved_files is not None:
            saved = target.saved_files(target.fit_to_hardware(plan, device.switch).state)
            own |= {path.rpartition("/")[2]: text for path, text in saved.items()}
        texts |= {f"files/{device.name}/{name}": text for name, text in own.items()}
    if by_platform:
        plays = {platform: _play(target_for(platform)) for platform in by_platform}
        texts["playbook.yaml"] = "---\n" + "\n".join(plays.values())
        texts["inventory.yaml"] = _inventory(by_platform)
        texts["README.md"] = _data("README.md") + "".join(map(_about, plays.values()))
        for entry in _PLAYS.iterdir():
            if any(entry.name.startswith(f"{platform}-") for platform in plays):
                texts[entry.name] = _data(entry.name)
    return Export(texts, tuple(left_out))


def _data(name: str) -> str:
    return _PLAYS.joinpath(name).read_text(encoding="utf-8")


def _group(platform: str) -> str:
    """Ansible's groups have no hyphen in their names."""
    return f"mltswitch_{platform.replace('-', '_')}"


def _play(target: Target) -> str:
    text = _data("cli.yaml" if target.play else f"{target.platform}.yaml")
    for word, meaning in target.play.items():
        text = text.replace(word, meaning)
    text = text.replace("PLATFORM", target.platform.replace("-", "_"))
    return re.sub(r"(?m)^  hosts: .*\n", lambda line: line[0] + _RULES, text)


def _about(play: str) -> str:
    """The comment at the top of a play, as an item of a list."""
    lines = [line.removeprefix("# ") for line in play.splitlines() if line.startswith("# ")]
    return f"- {lines[0]}\n" + "".join(f"{line}\n" for line in lines[1:])


def _inventory(by_platform: Mapping[str, Iterable[Device]]) -> str:
    """The devices by platform and by the groups of the user's inventory, so that `--limit` takes the same."""
    groups: dict[str, Any] = {}
    for platform, devices in by_platform.items():
        body = groups.setdefault(_group(platform), {"hosts": {}})
        body["vars"] = _platform_variables(target_for(platform))
        for device in devices:
            body["hosts"][device.name] = _variables(device)
            for name in sorted({*device.groups} - {"all", "ungrouped"}):
                groups.setdefault(name, {"hosts": {}})["hosts"].setdefault(device.name, {})
    document = {"all": {"children": groups}}
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return text


def _platform_variables(target: Target) -> dict[str, object]:
    if target.session is SessionKind.SHELL:
        # Over a terminal, programs colour what they print, and every line ends in two characters.
        return {"ansible_connection": "ansible.builtin.ssh", "ansible_ssh_use_tty": False}
    variables: dict[str, object] = {
        "ansible_connection": "ansible.netcommon.network_cli",
        "ansible_network_os": target.network_os or target.play["MODULE"],
    }
    if target.has_enable_mode:
        variables |= {"ansible_become": True, "ansible_become_method": "ansible.netcommon.enable"}
    return variables


def _variables(device: Device) -> dict[str, object]:
    known_hosts = shlex.quote(f"UserKnownHostsFile={device.known_hosts_file}")
    options = [f"-o {known_hosts}", "-o StrictHostKeyChecking=yes"]
    if device.jump_hosts:
        hops = ",".join(f"{hop.user}@{hop.address}:{hop.port}" for hop in device.jump_hosts)
        options.append(f"-o ProxyJump={hops}")
    variables: dict[str, object] = {
        "ansible_host": device.address,
        "ansible_port": device.port,
        "ansible_user": device.user,
        "ansible_ssh_common_args": " ".join(options),
    }
    if device.key_file is not None:
        variables["ansible_ssh_private_key_file"] = str(device.key_file)
    if device.password is not None:
        variables["ansible_password"] = _reference(device.password)
    if device.become and target_for(device.platform).session is SessionKind.SHELL:
        variables["ansible_become"] = True
    if device.become_password is not None:
        variables["ansible_become_password"] = _reference(device.become_password)
    return variables


def _reference(secret: Secret) -> str:
    if secret.source.startswith(VAULT):
        return _Vault(secret.source)
    return f"{{{{ lookup('ansible.builtin.env', '{secret.source}') }}}}"
