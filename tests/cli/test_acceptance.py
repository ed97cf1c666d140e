"""`mltswitch acceptance`: what is refused before a packet is sent, how hosts are reached, what is printed."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from mltswitch.app.acceptance import parse_hosts, ssh_prefix
from mltswitch.capabilities import Unverified
from mltswitch.cli import main
from mltswitch.cli.acceptance import acceptance_answer
from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.measure.acceptance import AcceptanceResult, Check, Question
from mltswitch.plan import Plan
from tests.conftest import LAB_FABRIC

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(
    lab_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run the command with the lab's plan and inventory, and an ssh that nobody lets in."""
    (tmp_path / "plan.yaml").write_text(dump_yaml(lab_plan))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text("#!/bin/sh\necho 'n61: Permission denied (publickey).' >&2\nexit 255\n")
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as end:
            main(["acceptance", *arguments, "-i", str(LAB_FABRIC.parent)])
        assert isinstance(end.value.code, int)
        return end.value.code, capsys.readouterr().err

    return call


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["leaf9", "--hosts", "host3,host4"], "no device 'leaf9'"),
        (["leaf2", "--hosts", "host3,-oProxyCommand=id"], "is not understood"),
        (["leaf2", "--hosts", "host3=-oProxyCommand=id,host4"], "is not understood"),
        (["leaf2", "--hosts", "host3,,host4"], "is not understood"),
        (["leaf2", "--hosts", "host3,host3"], "host3 is named twice"),
        (["leaf2", "--hosts", "host3"], "at least two"),
        (["leaf2", "--hosts", "host3,host4", "--port", "eth9"], "has no port 'eth9'"),
        (["leaf2", "--hosts", "host3,host4", "--plan", "none.yaml"], "none.yaml"),
    ],
)
def test_bad_input_is_one_line(run: Run, arguments: list[str], words: str) -> None:
    code, error = run(*arguments)
    assert code == 2
    assert words in error
    assert error.count("\n") == 1


def test_a_host_that_lets_nobody_in(run: Run) -> None:
    code, error = run("onyx1", "--hosts", "host1=root@n61,host3=root@n62,host5=root@n63")
    assert code == 3
    assert "host5: n61: Permission denied (publickey)." in error.splitlines()[-1]


def test_hosts_and_what_ssh_calls_them() -> None:
    assert parse_hosts("a, b=root@10.0.0.1,c=ssh://root@[fe80::1%eth0]:2222") == {
        "a": "a",
        "b": "root@10.0.0.1",
        "c": "ssh://root@[fe80::1%eth0]:2222",
    }
    with pytest.raises(UserInputError, match="is not understood"):
        parse_hosts("a=root@10.0.0.1;id")


def test_ssh_asks_nothing_and_checks_the_host_key() -> None:
    words = ssh_prefix("root@n61", Path("rack.conf"))
    assert words[-2:] == ("--", "root@n61")
    assert words[:4] == ("ssh", "-T", "-F", "rack.conf")
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes"} <= set(words)


def outcome(checks: tuple[Check, ...]) -> AcceptanceResult:
    return AcceptanceResult(
        "leaf2",
        "1/1",
        "onyx",
        "sn2100",
        "host5",
        ("host1", "host3"),
        10_000_000,
        1514,
        20.0,
        1e-4,
        2e-3,
        checks,
        (Unverified("onyx.a", "what was open"),),
        (Unverified("onyx.b", "what is"),),
    )


def test_a_failure_is_explained_and_open_questions_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    checks = (
        Check(Question.RATE, "gradient-0", True, "10 Mbit/s", "10 Mbit/s ± 5%"),
        Check(Question.STANDS, "gradient-0", False, "30 B", "60 B ± 9 B", "L is another one"),
        Check(Question.COUNTERS, "gradient-0", None, "", "", "mltswitch reads no counters of onyx"),
        Check(Question.COUNTERS, "gradient-1", None, "", "", "mltswitch reads no counters of onyx"),
    )
    result = outcome(checks)
    acceptance_answer(result).print(as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert "FAIL gradient-0, the queue stands at L: seen 30 B, expected 60 B ± 9 B: L is another one" in lines
    reason = "mltswitch reads no counters of onyx"
    question = "the device's counters agree"
    assert f"not checked: gradient-0 {question}, gradient-1 {question}: {reason}" in lines
    assert "settled on this port of onyx/sn2100: what was open (onyx.a)" in lines
    assert "still open on onyx/sn2100: what is (onyx.b)" in lines
    assert lines[-1] == "failed: 1 pass, 1 FAIL, 2 not checked"


def test_what_was_measured_again_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    checks = (
        Check(Question.RATE, "gradient-0", True, "10 Mbit/s", "10 Mbit/s ± 5%"),
        Check(Question.STANDS, "gradient-0", False, "30 B", "60 B ± 9 B", "L is another one", measured=3),
    )
    acceptance_answer(outcome(checks)).print(as_json=False)
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "measured 3 times" in words
    assert words.count("measured") == 1


MARKED = Check(Question.MARKED_ABOVE, "gradient-0", True, "100% CE of 900", "at least 97% CE")
DROPPED = Check(Question.DROPPED_ABOVE, "gradient-0", True, "0 delivered of 90", "at most 3% delivered")


def test_what_was_not_seen_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    unseen = Check(Question.DROPPED_ABOVE, "gradient-1", None, "", "", "S of 3 kB is too short")
    acceptance_answer(outcome((MARKED, DROPPED, unseen))).print(as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert f"not checked: gradient-1 {Question.DROPPED_ABOVE}: S of 3 kB is too short" in lines
    assert lines[-2].startswith("inconclusive: ")
    assert lines[-2].endswith(f": gradient-1 {Question.DROPPED_ABOVE}")
    assert lines[-1] == "inconclusive: 2 pass, 1 not checked"


@pytest.mark.parametrize(
    ("last", "code", "verdict"),
    [(True, 0, "accepted"), (False, 5, "failed"), (None, 6, "inconclusive")],
)
def test_exit_codes(
    lab_plan: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    last: bool | None,
    code: int,
    verdict: str,
) -> None:
    (tmp_path / "plan.yaml").write_text(dump_yaml(lab_plan))
    result = outcome((MARKED, replace(DROPPED, holds=last)))
    monkeypatch.setattr("mltswitch.app.acceptance.accept", lambda *_: result)
    monkeypatch.setattr("mltswitch.app.acceptance.open_hosts", lambda *_: nullcontext())
    hosts = "host1=root@n61,host3=root@n62,host5=root@n63"
    plan, inventory = str(tmp_path / "plan.yaml"), str(LAB_FABRIC.parent)
    with pytest.raises(SystemExit) as end:
        main(["acceptance", "onyx1", "--hosts", hosts, "--plan", plan, "-i", inventory, "--json"])
    assert end.value.code == code
    document = json.loads(capsys.readouterr().out)
    assert (document["accepted"], document["verdict"]) == (last is True, verdict)
