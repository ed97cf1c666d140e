"""Inventories as files: what Ansible lists is what we load, and what is refused is refused on one line.

`corpus/` holds inventories that are read, `refused/` those that are not. In each folder, `.sources` names
what `-i` gets (else the folder itself), `.vault-password` is the vault's, `.listed.json` holds each host's
variables and groups as Ansible's own program lists them (`make golden` asks it again), `.devices.json` some
attributes of the devices, `.line` how the error begins.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mltswitch.errors import UserInputError
from mltswitch.inventory import load_inventory
from mltswitch.inventory.load import read_hosts

HERE = Path(__file__).parent
ACCEPTED = sorted((HERE / "corpus").iterdir())
REFUSED = sorted((HERE / "refused").iterdir())
SMALL_READS = 11
"""At least so many are read without ansible-core."""
FOR_READING_ALONE = {"ini-address-names", "localhost"}
"""Ansible lists them, and as devices they are refused: an address for a name, no SSH."""
program = shutil.which("ansible-inventory", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
needs_ansible = pytest.mark.skipif(program is None, reason="ansible-core is not installed")
SECRETS = ("tr0ub4dor", "lab password")


def sources(case: Path) -> list[Path]:
    listed = case / ".sources"
    return [case / name for name in listed.read_text().split()] if listed.exists() else [case]


@pytest.fixture(autouse=True)
def _environment(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without an inventory, an empty configuration, and the password of the case's vault."""
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.cfg").touch()
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "empty.cfg"))
    case = getattr(request.node, "callspec", None)
    password = case.params["case"] / ".vault-password" if case and "case" in case.params else None
    if password is not None and password.exists():
        monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password))


def asked_of_ansible(paths: list[Path]) -> dict[str, Any]:
    """Variables and groups of each host as `ansible-inventory --list` prints them."""
    arguments = [argument for path in paths for argument in ("-i", str(path))]
    done = subprocess.run([str(program), *arguments, "--list"], capture_output=True, check=True)
    data = json.loads(done.stdout)
    meta = data.pop("_meta")["hostvars"]

    def below(group: str) -> set[str]:
        body = data.get(group, {})
        return set(body.get("hosts", ())).union(*(below(child) for child in body.get("children", ())))

    return {
        host: {"variables": meta.get(host, {}), "groups": [group for group in data if host in below(group)]}
        for host in sorted(below("all"))
    }


def listed_by_ansible(case: Path) -> dict[str, tuple[dict[str, Any], set[str]]]:
    hosts = json.loads((case / ".listed.json").read_text())
    return {host: (said["variables"], set(said["groups"])) for host, said in hosts.items()}


@needs_ansible
@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_what_ansible_lists_is_what_we_load(
    case: Path, update_golden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if update_golden:
        listing = json.dumps(asked_of_ansible(sources(case)), indent=1, sort_keys=True, ensure_ascii=False)
        (case / ".listed.json").write_text(listing + "\n")
    expected = listed_by_ansible(case)
    assert expected
    hosts = read_hosts(*sources(case))
    assert {host: (listed.variables, set(listed.groups)) for host, listed in hosts.items()} == expected
    monkeypatch.setattr("mltswitch.inventory.load.read_hosts", lambda *_: hosts)  # a second is a second
    if case.name not in FOR_READING_ALONE:
        devices = {device.name: device for device in load_inventory(*sources(case)).devices}
        assert devices.keys() == expected.keys()
        assert not any(secret in str(devices) for secret in SECRETS)
        said = json.loads((case / ".devices.json").read_text()) if (case / ".devices.json").exists() else {}
        for name, attributes in said.items():
            shown = {attribute: getattr(devices[name], attribute) for attribute in attributes}
            assert {key: str(value) for key, value in shown.items()} == {
                key: str(tuple(value) if isinstance(value, list) else value)
                for key, value in attributes.items()
            }


def read_by_the_small_one(case: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("mltswitch.inventory.load.ansible_program", lambda: None)
    try:
        return read_hosts(*sources(case))
    except UserInputError as error:
        return error


def test_the_small_loader_agrees_or_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {case: read_by_the_small_one(case, monkeypatch) for case in ACCEPTED}
    monkeypatch.undo()
    agreed = [case for case, found in small.items() if not isinstance(found, UserInputError)]
    assert len(agreed) >= SMALL_READS
    for case in agreed:
        found = {host: (listed.variables, set(listed.groups)) for host, listed in small[case].items()}
        assert found == listed_by_ansible(case), case.name


@needs_ansible
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_is_refused_is_refused_on_one_line(case: Path, tmp_path: Path) -> None:
    with pytest.raises(UserInputError) as caught:
        load_inventory(*sources(case)).select()
    line = str(caught.value)
    assert line.startswith((case / ".line").read_text().strip().replace("{folder}", str(case)))
    assert "\n" not in line
    assert not any(secret in line for secret in SECRETS)
    assert not (tmp_path / "ran").exists()


@needs_ansible
def test_an_encrypted_password_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = HERE / "corpus" / "vault-value"
    [device, _] = load_inventory(case).devices
    assert device.password is not None
    with pytest.raises(UserInputError, match="leaf1: ansible_password: ansible-vault does not decrypt it"):
        device.password.read("leaf1")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(case / ".vault-password"))
    assert device.password.read("leaf1").get_secret_value() == "tr0ub4dor&3"


@needs_ansible
def test_the_folder_in_which_one_stands_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = HERE / "corpus" / "ini-extension" / "rack.ini"
    monkeypatch.delenv("ANSIBLE_CONFIG")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("ansible_user: somebody\n")
    (tmp_path / "ansible.cfg").write_text("# no settings\n[defaults]\n")
    assert {device.user for device in load_inventory(case).devices} == {"root"}
    (tmp_path / "ansible.cfg").write_text("[defaults]\nhash_behaviour = merge\n")
    with pytest.raises(
        UserInputError, match=r"^ansible.cfg: Ansible would read these settings. Set ANSIBLE_CONFIG"
    ):
        load_inventory(case)
    monkeypatch.setenv("ANSIBLE_CONFIG", "ansible.cfg")
    assert load_inventory(case).devices
    (tmp_path / "ansible.cfg").write_text("[defaults]\nremote_user = somebody\n")
    with pytest.raises(UserInputError, match=r"^ansible.cfg: remote_user: is not honoured"):
        load_inventory(case)


@needs_ansible
@pytest.mark.parametrize("program", [True, False])
def test_what_is_rendered_below_an_inventory_is_none(
    program: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for an inventory of such a name, which must not go unread."""
    if not program:
        monkeypatch.setattr("mltswitch.inventory.load.ansible_program", lambda: None)
    rack = tmp_path / "rack"
    for name, text in (
        ("hosts.yaml", "all: {hosts: {leaf1: }}"),
        ("configs/leaf1/qdiscs.tc", "qdisc replace dev eth1 root handle 1: prio"),
        ("configs/leaf2/mltswitch.yaml", "- set: {qos: {}}"),
    ):
        (rack / name).parent.mkdir(parents=True, exist_ok=True)
        (rack / name).write_text(f"{text}\n")
    assert read_hosts(rack).keys() == {"leaf1"}
    (rack / "configs/leaf2/mltswitch.yaml").write_text("more: {hosts: {another: }}\n")
    if program:
        assert read_hosts(rack).keys() == {"leaf1", "another"}
    else:
        with pytest.raises(UserInputError, match="only ansible-core reads that"):
            read_hosts(rack)
