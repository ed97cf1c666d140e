"""The small Linux in which SONiC and NVUE run: its bash, its files, its tools."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsim import CumulusDevice, SonicDevice
from switchsim.bash import ShellSyntaxError, parse
from switchsim.linux import LinuxDevice

KINDS = [CumulusDevice, SonicDevice]


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> LinuxDevice:
    switch: LinuxDevice = request.param(ports=1)
    return switch


@pytest.mark.parametrize(
    ("line", "status", "stdout", "stderr"),
    [
        ("false || echo \"a b\" 'c;d' e\\ f", 0, "a b c;d e f\n", ""),
        ("false && echo a; echo $?", 0, "1\n", ""),
        ("echo one > /tmp/a && echo two >> /tmp/a && cat < /tmp/a | tee /tmp/b", 0, "one\ntwo\n", ""),
        ("cat /nowhere 2>&1 | cat", 0, "cat: /nowhere: No such file or directory\n", ""),
        ("cat /nowhere 2> /dev/null", 1, "", ""),
        ("rm -f /tmp/a /tmp/none; cat /tmp/a", 1, "", "cat: /tmp/a: No such file or directory\n"),
        ("! false && echo $?", 0, "0\n", ""),
        ("! ", 1, "", ""),
        ("rm -q 2>&1", 1, "rm: No such option: -q\n", ""),
        ("echo a > /root/x", 1, "", "bash: line 1: /root/x: Permission denied\n"),
        ("cat < /tmp/none > /root/x", 1, "", "bash: line 1: /tmp/none: No such file or directory\n"),
        ("sudo echo a > ''", 1, "", "bash: line 1: : Is a directory\n"),
        ("echo a | grep -v b c d", 2, "", "grep: not so [emulator]\n"),
        ("foo", 127, "", "bash: line 1: foo: command not found\n"),
        ("sudo foo", 1, "", "sudo: foo: command not found\n"),
        ("echo $HOME", 2, "", "bash: line 1: `$' is not part of this shell [emulator]\n"),
        ("echo `id`", 2, "", "bash: line 1: ``' is not part of this shell [emulator]\n"),
        ("cat << EOF", 2, "", "bash: line 1: `<<' is not part of this shell [emulator]\n"),
        ("echo 'a", 2, "", "bash: line 1: unexpected EOF while looking for matching `''\n"),
        ('echo "a', 2, "", "bash: line 1: unexpected EOF while looking for matching `\"'\n"),
        ("| cat", 2, "", "bash: line 1: syntax error near unexpected token `|'\n"),
        ("rm /tmp/none", 1, "", "rm: cannot remove '/tmp/none': No such file or directory\n"),
    ],
)
def test_lines(device: LinuxDevice, line: str, status: int, stdout: str, stderr: str) -> None:
    result = device.execute("admin", line)
    assert (result.status, result.stdout.decode(), result.stderr.decode()) == (status, stdout, stderr)


@pytest.mark.parametrize("line", ["grep -v '('", "grep -v x", "cat", "tee /tmp/a"])
def test_bytes_that_are_no_text(device: LinuxDevice, line: str) -> None:
    assert device.execute("admin", line, lambda: b"\xff\x00").stdout in {b"\xff\x00", b""}


@given(st.text(alphabet=st.sampled_from(list(" '\"\\|;&<>$?`ab/-")), max_size=30))
def test_any_line_parses_or_is_refused(line: str) -> None:
    try:
        parse(line)
    except ShellSyntaxError:
        return


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(KINDS), st.text(max_size=40))
def test_no_line_raises(kind: type[LinuxDevice], line: str) -> None:
    session = kind("x", 1).open_session("admin")
    for text in (line, f"nv set {line}", f"nv config {line}", f"sudo config {line}"):
        session.enter(text)


def test_files_are_bounded(device: LinuxDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchsim.linux.MAX_TOTAL_BYTES", 100_000)
    result = device.execute("admin", "tee /tmp/x > /dev/null", lambda: b"x" * 100_001)
    assert (result.status, b"No space left on device" in result.stderr) == (1, True)


def test_an_interactive_session(device: LinuxDevice) -> None:
    session = device.open_session("admin")
    before = session.prompt
    assert before.endswith(":~$ ")
    assert session.enter("foo").text == "-bash: foo: command not found\n"
    session.enter("sudo -s")
    assert session.prompt.startswith(f"root@{device.name}")
    assert not session.enter("exit").closes
    assert session.prompt == before
    assert session.enter("exit").closes


@pytest.mark.parametrize("kind", KINDS)
def test_number_of_ports(kind: type[LinuxDevice]) -> None:
    assert kind("x", 64)
    with pytest.raises(ValueError, match="expected 1 to 64"):
        kind("x", 65)
