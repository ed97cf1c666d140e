"""`mltswitch agent doctor`: alone, and two of them over loopback, as text, as JSON and as an exit code."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mltswitch.documents import dump_yaml
from mltswitch.hostagent.security.keys import make_keys
from mltswitch.plan import Plan
from tests.cli.agent_commands import Running, run, running

ONE = ("--address", "127.0.91.1", "--address", "127.0.91.2", "--name", "one")
OTHER = ("--address", "127.0.92.1", "--address", "127.0.92.2", "--name", "other", "--listen", "127.0.92.1:0")


@contextmanager
def listening(*arguments: object) -> Iterator[tuple[Running, str]]:
    with running("doctor", "--once", *arguments) as listener:
        yield listener, listener.reads(r"listening at (\S+);")[1]


def test_alone(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    assert re.search(r"Errors: 0, warnings: \d+", out)
    document = json.loads(run(capsys, "doctor", "--json")[1])
    assert (document["status"] in {"ok", "warning"}, document["peer"], document["paths"]) == (True, None, [])
    assert [*document["machine"][0]] == ["status", "where", "what", "hint"]


def test_an_address_that_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--address", "192.0.2.77", "--plaintext", "--json")
    [found] = [entry for entry in json.loads(out)["machine"] if entry["status"] == "error"]
    assert code == 3
    assert (found["where"], found["what"]) == ("address 192.0.2.77", "this host does not have it")


def test_two_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    with listening(*OTHER) as (listener, place):
        code, out, _ = run(capsys, "doctor", "--to", f"other={place}", *ONE, "--dscp", "34,40-41", "--json")
        ended, _, errors = listener.ends()
    assert (code, ended) == (0, 0)
    assert "examined by one" in errors
    document = json.loads(out)
    assert (document["name"], document["peer"], document["status"]) == ("one", "other", "ok")
    assert [(path["sender"], path["path"], path["remote"]) for path in document["paths"]] == [
        ("one", 0, "127.0.92.1"),
        ("one", 1, "127.0.92.2"),
        ("other", 0, "127.0.91.1"),
        ("other", 1, "127.0.91.2"),
    ]
    for path in document["paths"]:
        assert path["longest_packet_bytes"] > 60_000
        assert path["lost_packets"] == 0
        assert "34, 40-41 kept" in [finding["what"] for finding in path["findings"]]


def test_with_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_keys(tmp_path / "job", ["one", "other"])
    mine, theirs = (("--keys", tmp_path / "job" / "hosts" / name) for name in ("one", "other"))
    with listening(*OTHER[:4], *OTHER[6:], *theirs) as (listener, place):
        code, out, _ = run(capsys, "doctor", "--to", f"other={place}", *ONE[:4], *mine)
        assert listener.ends()[0] == 0
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith(("Host", "Path"))][:2] == [
        "Host one",
        "Host other, as it says itself",
    ]
    assert out.count("ECT(0) kept") == 4


def test_a_plan_says_addresses_and_routes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, lab_plan: Plan
) -> None:
    """Those are not this machine's, and that is what is found."""
    (tmp_path / "plan.yaml").write_text(dump_yaml(lab_plan))
    file = tmp_path / "agent.yaml"
    file.write_text("schema: mltswitch/agent/v1\nplan: plan.yaml\nname: host1\nplaintext: true\n")
    code, out, _ = run(capsys, "doctor", "-c", file, "--json")
    assert code == 3
    found = [entry["where"] for entry in json.loads(out)["machine"] if entry["status"] == "error"]
    assert {"address 10.101.0.1", "address 10.102.0.1"} <= set(found)


def test_nobody_is_a_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    with running("recv", "--listen", "127.0.92.1:0", "--name", "other") as receiver:
        place = receiver.reads(r"listens at (\S+)")[1]
        code, _, errors = run(capsys, "doctor", "--to", f"other={place}", *ONE)
    assert code == 6
    assert "is an agent, and no doctor: there, run `mltswitch agent doctor --listen`" in errors


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--to", "a", "--listen", "127.0.0.1"), "exclude each other"),
        (("--once",), "--once: means nothing without --listen"),
        (("--to", "host3"), "peer host3: nobody says where it listens"),
        (("--to", "host3=-x"), "--to: "),
        (("--to", "host3=10.0.0.1:99999"), "--to: "),
        (("--dscp", "34"), "--dscp: means nothing without --to"),
        (("--to", "b=127.0.0.1", "--dscp", "x"), "'x' is no range of 0-63"),
        (("--to", "b=127.0.0.1", "--dscp", "5-64"), "'5-64' is no range of 0-63"),
        (("--to", "b=127.0.0.1", "--dscp", "9-5"), "'9-5' is no range of 0-63"),
        (("--keys", "/nowhere"), "/nowhere"),
        (("--plaintext", "--to", "b=192.0.2.1"), "--address: data from 127.0.0.1 does not leave"),
        (("--listen", "192.0.2.1"), "plain text does not leave this machine"),
        (("--address", "127.0.0.1", "--address", "::1"), "all IPv4 or all IPv6"),
    ],
)
def test_one_clear_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str) -> None:
    code, _, errors = run(capsys, "doctor", *arguments)
    assert code == 2
    assert line in errors
    assert errors.count("\n") == 1
