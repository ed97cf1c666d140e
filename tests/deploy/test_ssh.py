"""How one gets to a device: SSH agent, encrypted keys, jump hosts, and sudo there, against real sshds."""

import getpass
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltswitch.deploy import ssh
from mltswitch.deploy.shell import open_shell
from mltswitch.deploy.ssh import translated, unlock_keys
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.inventory import Device, JumpHost, Secret
from tests.deploy.sshd import Sshd, make_key, running_sshd

PASSPHRASE = "correct horse"  # noqa: S105 (of a key that the test makes)
SUDO = """#!/bin/sh
# sudo as far as mltswitch uses it: it asks where a file `password` stands beside it, with -S on its input
folder=$(dirname "$0"); asks=no
while [ "$1" != -- ]; do case $1 in -S) asks=yes;; -p) shift;; esac; shift; done; shift
if [ -e "$folder/password" ]; then
    [ $asks = yes ] && IFS= read -r given
    [ "$given" = "$(cat "$folder/password")" ] || { echo "sudo: a password is required" >&2; exit 1; }
fi
BECAME=root exec "$@"
"""


@pytest.fixture(autouse=True)
def _locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "_unlocked", {})


@pytest.fixture
def locked(sshd: Sshd) -> Path:
    """The encrypted key that the sshd accepts."""
    path = sshd.folder / "locked"
    if not path.exists():
        public = make_key(path, PASSPHRASE)
        with (sshd.folder / "authorized").open("a") as stream:
            stream.write(public + "\n")
    return path


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An SSH agent without keys."""
    with subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        yield
        process.terminate()


def add(key: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "askpass").write_text(f"#!/bin/sh\necho '{PASSPHRASE}'\n")
    (folder / "askpass").chmod(0o700)
    monkeypatch.setenv("SSH_ASKPASS", str(folder / "askpass"))
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    subprocess.run(["ssh-add", "-q", str(key)], check=True)


def said(device: Device, command: str = "echo here") -> str:
    with translated(device), open_shell(device) as session:
        return session.ask(command)


def test_the_keys_of_an_agent(
    sshd: Sshd, agent: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DeviceError, match="leaf1"):
        said(sshd.device(key_file=None))
    add(sshd.folder / "id", tmp_path, monkeypatch)
    assert said(sshd.device(key_file=None)) == "here\n"


def test_an_encrypted_key_that_the_agent_holds(
    sshd: Sshd, agent: None, locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(locked, tmp_path, monkeypatch)
    assert said(sshd.device(key_file=locked)) == "here\n"


def test_a_passphrase_from_the_environment(sshd: Sshd, locked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = sshd.device(
        key_file=locked, passphrase=Secret("mltswitch_key_passphrase_env", "RACK_PASSPHRASE")
    )
    monkeypatch.setenv("RACK_PASSPHRASE", "wrong horse")
    with pytest.raises(UserInputError, match=r"leaf1: .*locked: the passphrase does not open it") as caught:
        said(device)
    assert "horse" not in str(caught.value)
    monkeypatch.setenv("RACK_PASSPHRASE", PASSPHRASE)
    assert said(device) == "here\n"


def test_a_passphrase_is_asked_for_once_where_there_is_a_terminal(
    sshd: Sshd, locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = sshd.device(key_file=locked)
    with pytest.raises(
        UserInputError, match=r"is encrypted. Add it to ssh-agent, or set mltswitch_key_passphrase_env"
    ):
        unlock_keys([device])
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return PASSPHRASE

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(getpass, "getpass", answer)
    unlock_keys([device, device])
    assert said(device) == "here\n"
    assert asked == [f"Passphrase of {locked}: "]


def hop_of(running: Sshd, **changes: object) -> JumpHost:
    return JumpHost(**({"address": "127.0.0.1", "port": running.port, "user": getpass.getuser()} | changes))  # type: ignore[arg-type]


def test_through_two_jump_hosts(sshd: Sshd, tmp_path: Path) -> None:
    with running_sshd(tmp_path) as jump:
        with (jump.folder / "authorized").open("a") as stream:
            stream.write((sshd.folder / "id.pub").read_text())
        known = tmp_path / "both"
        known.write_text("".join((one.folder / "known_hosts").read_text() for one in (sshd, jump)))
        device = sshd.device(known_hosts_file=known, jump_hosts=(hop_of(jump), hop_of(sshd)))
        # the connection that the device sees is its own: sshd tells who calls
        assert said(device, "echo $SSH_CONNECTION").split()[3] == str(sshd.port)
        assert said(device) == "here\n"

        unknown = sshd.device(jump_hosts=(hop_of(jump),))
        with pytest.raises(
            DeviceError, match=rf"jump host of leaf1 .*{jump.port}.*: its host key is not known"
        ):
            said(unknown)
        closed = sshd.device(known_hosts_file=known, port=1, jump_hosts=(hop_of(jump),))
        with pytest.raises(DeviceError, match=r"jump host of leaf1 .*: does not reach 127.0.0.1:1: Connect"):
            said(closed)
        # behind a jump host the device's own host key is checked as ever
        known.write_text((jump.folder / "known_hosts").read_text())
        with pytest.raises(DeviceError, match=r"^leaf1 \(127.0.0.1:\d+\): its host key is not known"):
            said(sshd.device(known_hosts_file=known, jump_hosts=(hop_of(jump),)))


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("knows", [False, True])
def test_sudo(sshd: Sshd, monkeypatch: pytest.MonkeyPatch, asks: bool, knows: bool) -> None:
    """The command gets its input byte for byte, whether sudo reads the password or not."""
    (sshd.folder / "sudo").write_text(SUDO)
    (sshd.folder / "sudo").chmod(0o755)
    (sshd.folder / "password").write_text("tr0ub4dor&3") if asks else (sshd.folder / "password").unlink(True)
    monkeypatch.setenv("ROOT_PASSWORD", "tr0ub4dor&3")
    secret = Secret("mltswitch_become_password_env", "ROOT_PASSWORD") if knows else None
    data = b"a\n\x00\xff" * 1000
    with open_shell(sshd.device(become=True, become_password=secret)) as session:
        outcome = session.run('cat; echo "$BECAME" >&2; ps -eo args >&2', data)
    if asks and not knows:
        assert (outcome.status, outcome.complaint) == (1, "sudo: a password is required (exit status 1)")
        return
    assert (outcome.status, outcome.stdout) == (0, data)
    assert outcome.stderr.startswith(b"root\n")
    assert b"tr0ub4dor" not in outcome.stderr
