"""The shell session against a real sshd: exactness, host keys, refusals, time and size limits."""

import logging
import shutil
import socket
from pathlib import Path

import pytest
from pydantic import SecretStr

from mltswitch.deploy import Status, connect, push, shell, ssh, verify
from mltswitch.deploy.shell import open_shell
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.inventory import Device, Inventory, Secret
from mltswitch.targets import Step
from tests.deploy.doubles import PLANNED_LIMIT_BYTES, FileTarget, as_target, small_plan
from tests.deploy.silent import silent_server
from tests.deploy.sshd import ADDRESSES, Sshd, make_key


def line(device: Device, target: FileTarget) -> str:
    """The one line with which a connection fails."""
    with pytest.raises(DeviceError) as caught, connect(device, as_target(target)):
        pass
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"leaf1 (127.0.0.1:{device.port}): ")
    return text


def test_output_error_output_status_and_input_are_exact(sshd: Sshd) -> None:
    data = bytes(range(256)) * 4 + b"\r\n\x00\xff"
    with open_shell(sshd.device()) as session:
        outcome = session.run("cat; printf 'to stderr\\n' >&2; exit 3", data)
    assert outcome.stdout == data
    assert outcome.stderr == b"to stderr\n"
    assert outcome.status == 3


@pytest.mark.parametrize("size", [0, 1, 65_536, 1_000_000, 5_000_000])
def test_large_input_and_output_at_once_do_not_deadlock(sshd: Sshd, size: int) -> None:
    data = b"0123456789abcdef" * (size // 16) + b"x" * (size % 16)
    with open_shell(sshd.device()) as session:
        outcome = session.run("cat", data)
    assert outcome.stdout == data


def test_large_outputs_on_both_channels(sshd: Sshd) -> None:
    command = "head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero"
    with open_shell(sshd.device()) as session:
        outcome = session.run(command)
    assert (len(outcome.stdout), len(outcome.stderr)) == (3_000_000, 3_000_000)


def test_a_command_that_does_not_read_its_input_decides_by_its_status(sshd: Sshd) -> None:
    with open_shell(sshd.device()) as session:
        assert session.run("true", b"x" * 4_000_000).status == 0
        assert session.run("false", b"x" * 4_000_000).status == 1


def test_many_commands_share_one_connection(sshd: Sshd) -> None:
    with open_shell(sshd.device()) as session:
        answers = [session.ask(f"echo {number}") for number in range(25)]
    assert answers == [f"{number}\n" for number in range(25)]


def test_a_failed_question_names_device_command_and_complaint(sshd: Sshd) -> None:
    device = sshd.device()
    with open_shell(device) as session, pytest.raises(DeviceError) as caught:
        session.ask("echo 'Cannot find device\n \"eth9\"' >&2; exit 2")
    text = str(caught.value)
    assert text.startswith(f"leaf1 (127.0.0.1:{sshd.port}): refuses ")
    assert text.endswith('Cannot find device "eth9" (exit status 2)')


def test_no_step_is_sent_after_a_refused_one(sshd: Sshd, tmp_path: Path) -> None:
    steps = (
        Step(f"cat > {tmp_path}/one", "1"),
        Step("cat >&2; exit 1", "no"),
        Step(f"touch {tmp_path}/three"),
    )
    with (
        open_shell(sshd.device()) as session,
        pytest.raises(DeviceError, match=r"step 2 of 3.*: no \(exit"),
    ):
        session.apply(steps)
    assert (tmp_path / "one").read_text() == "1"
    assert not (tmp_path / "three").exists()


def test_a_command_ended_by_a_signal_is_refused(sshd: Sshd) -> None:
    with open_shell(sshd.device()) as session, pytest.raises(DeviceError, match="exit status -1"):
        session.ask("kill -9 $$")


def test_a_command_that_never_ends_is_given_up(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "COMMAND_SECONDS", 0.5)
    with (
        open_shell(sshd.device()) as session,
        pytest.raises(DeviceError, match=r"not finished 'sleep 60'"),
    ):
        session.ask("sleep 60")


def test_a_step_may_take_longer_than_others(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "COMMAND_SECONDS", 0.5)
    with open_shell(sshd.device()) as session:
        session.apply((Step("sleep 1", seconds=20.0),))
        with pytest.raises(DeviceError, match=r"'sleep 30' after 0.2 s; it may still be running"):
            session.apply((Step("sleep 30", seconds=0.2),))


def test_a_server_that_never_answers_a_request_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "COMMAND_SECONDS", 0.5)
    with silent_server(tmp_path) as reached, open_shell(reached) as session:
        with pytest.raises(DeviceError, match=r"not finished 'true' after 0.5 s"):
            session.ask("true")
        with pytest.raises(DeviceError, match=r"leaf1 \("):
            session.ask("true")


def test_an_answer_without_end_is_given_up(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MAXIMUM_ANSWER_BYTES", 100_000)
    with (
        open_shell(sshd.device()) as session,
        pytest.raises(DeviceError, match="more than 100000 bytes"),
    ):
        session.ask("yes")


def test_a_connection_that_breaks_is_a_device_error(sshd: Sshd) -> None:
    with open_shell(sshd.device()) as session:
        with pytest.raises(DeviceError, match="leaf1"):
            session.ask("kill $PPID; sleep 5")
        with pytest.raises(DeviceError, match="leaf1"):
            session.ask("true")


def test_a_wrong_host_key_is_refused_with_both_fingerprints(
    sshd: Sshd, target: FileTarget, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other")
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {other}\n")
    text = line(sshd.device(known_hosts_file=known_hosts), target)
    assert f"is not the one in {known_hosts}; nothing was sent" in text
    assert text.count("ssh-ed25519 SHA256:") == 2


@pytest.mark.parametrize("content", [None, "", "127.0.0.1 ssh-ed25519 AAAA\n"])
def test_an_unknown_host_key_is_refused(
    sshd: Sshd, target: FileTarget, tmp_path: Path, content: str | None
) -> None:
    known_hosts = tmp_path / "known_hosts"
    if content == "":
        known_hosts.write_text("")
    elif content is not None:
        # Without the port it is another host's key.
        known_hosts.write_text(f"127.0.0.1 {make_key(tmp_path / 'other')}\n")
    text = line(sshd.device(known_hosts_file=known_hosts), target)
    assert f"host key is not known; nothing was sent (expected a line for [127.0.0.1]:{sshd.port}" in text
    assert f"ssh-keyscan -p {sshd.port} 127.0.0.1" in text


def test_a_closed_port_is_unreachable(sshd: Sshd, target: FileTarget) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert "cannot be reached: Connection refused" in line(sshd.device(port=port), target)


def test_a_port_that_never_answers_times_out(
    sshd: Sshd, target: FileTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "BANNER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        line(sshd.device(port=silent.getsockname()[1]), target)


def test_a_name_that_does_not_resolve(sshd: Sshd, target: FileTarget) -> None:
    with (
        pytest.raises(DeviceError, match="cannot be resolved"),
        connect(sshd.device(address="no-such-host.invalid"), as_target(target)),
    ):
        pass


def test_a_key_that_the_device_does_not_know(
    sshd: Sshd, target: FileTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator's own key, which the device would take, is not offered in its place."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    shutil.copy(sshd.folder / "id", tmp_path / ".ssh" / "id_ed25519")
    make_key(tmp_path / "stranger")
    text = line(sshd.device(key_file=tmp_path / "stranger"), target)
    assert f"with the key {tmp_path / 'stranger'}" in text


def test_a_key_file_that_holds_no_key(sshd: Sshd, target: FileTarget, tmp_path: Path) -> None:
    (tmp_path / "garbage").write_text("no key\n")
    with pytest.raises(UserInputError, match=r"leaf1: .*garbage: holds no private key"):
        push(small_plan(), Inventory((sshd.device(key_file=tmp_path / "garbage"),), Path("inventory")))


def test_a_password_reaches_no_message_and_no_log(
    sshd: Sshd, target: FileTarget, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = SecretStr("tr0ub4dor&3")
    monkeypatch.setenv("RACK_PASSWORD", secret.get_secret_value())
    device = sshd.device(key_file=None, password=Secret("mltswitch_password_env", "RACK_PASSWORD"))
    with caplog.at_level(logging.DEBUG):
        text = line(device, target)
    assert "refuses user" in text
    assert "with a password" in text
    for place in (text, caplog.text, repr(device)):
        assert secret.get_secret_value() not in place
        assert "RACK_PASSWORD" not in place


def test_push_and_verify_over_ssh(sshd: Sshd, target: FileTarget) -> None:
    plan = small_plan()
    places = zip(("leaf1", "leaf2", "spine1"), ADDRESSES, strict=True)
    rack = Inventory(tuple(sshd.device(name, address=address) for name, address in places), Path("inventory"))
    for name in ("leaf1", "leaf2"):
        target.running(name).write_text("1\n")
    first = push(plan, rack)
    assert [report.status for report in first.devices] == [Status.CHANGED, Status.CHANGED, Status.FAILED]
    assert "No such file" in first.devices[2].error
    assert target.saved("leaf1").read_text() == f"{PLANNED_LIMIT_BYTES}\n"
    assert [report.status for report in push(plan, rack, limit="leaf1,leaf2").devices] == [Status.OK] * 2
    target.running("leaf2").write_text("2\n")
    assert [report.status for report in verify(plan, rack, limit="leaf1,leaf2").devices] == [
        Status.OK,
        Status.DIFFERS,
    ]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[127.0.0.1]:22 ssh-ed25519 !!!x\n"])
def test_a_broken_known_hosts_file_stops_before_anything_is_sent(
    sshd: Sshd, target: FileTarget, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "known_hosts").write_bytes(content)
    rack = Inventory((sshd.device(known_hosts_file=tmp_path / "known_hosts"),), Path("inventory"))
    with pytest.raises(UserInputError, match="known_hosts: cannot be read"):
        push(small_plan(), rack)


def test_a_missing_key_file_stops_before_anything_is_sent(sshd: Sshd, target: FileTarget) -> None:
    rack = Inventory((sshd.device(key_file=Path("/nonexistent/.lab/key")),), Path("inventory"))
    with pytest.raises(UserInputError, match=r"key: the private key cannot be read.*`mltswitch lab up`"):
        push(small_plan(), rack)


def test_all_questions_go_in_one_channel(sshd: Sshd) -> None:
    """Answers with and without a line end, one that ends the shell, and one that fails."""
    with open_shell(sshd.device()) as session:
        asked = ("printf 'no end'", "echo a; echo b", "cat /dev/null", "false || true")
        assert session.ask_all(asked) == dict(zip(asked, ("no end", "a\nb\n", "", ""), strict=True))
        assert session.ask_all(()) == {}
        for refused in ("ls /nonexistent", "exit 3", "echo only >&2; false"):
            with pytest.raises(DeviceError) as caught:
                session.ask_all(("echo first", refused, "echo last"))
            assert f"refuses {refused!r}: " in str(caught.value)


def test_steps_that_prepare_go_in_one_channel_and_are_refused_one_by_one(sshd: Sshd, tmp_path: Path) -> None:
    file = tmp_path / "said"
    steps = [Step(f"echo {number} >> {file}", prepares=True) for number in range(3)]
    with open_shell(sshd.device()) as session:
        session.apply([Step(f"cat > {file}", "begin\n"), *steps, Step(f"echo end >> {file}")])
        assert file.read_text() == "begin\n0\n1\n2\nend\n"
        with pytest.raises(DeviceError, match=r"refuses step 3 of 4, 'echo out; ls /nonexistent': ls: "):
            session.apply([*steps[:2], Step("echo out; ls /nonexistent", prepares=True), steps[2]])
        assert file.read_text() == "begin\n0\n1\n2\nend\n0\n1\n"
