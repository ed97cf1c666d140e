"""`mltswitch agent doctor`: alone, and two of them over loopback, as text, as JSON and as an exit code."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mltswitch.cli import agent_doctor
from mltswitch.cli import strangers as strangers_module
from mltswitch.cli.agent_doctor import doctor
from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.credentials import Credentials
from mltswitch.hostagent.doctor import conversation
from mltswitch.hostagent.doctor.examined import Examined
from mltswitch.hostagent.errors import AgentError, PeerUnreachableError
from mltswitch.plan import Plan
from tests.hostagent.background import in_background
from tests.hostagent.control.peers import Job, nobody_listens
from tests.targets.test_entropy import with_mode

PATIENCE_SECONDS = 60.0
ONE = ("--address", "127.0.91.1", "--address", "127.0.91.2", "--name", "one")
OTHER = ("--address", "127.0.92.1", "--address", "127.0.92.2", "--name", "other", "--data-port", "0")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(doctor, arguments, standalone_mode=False)


@contextmanager
def listening(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Iterator[str]:
    """`--listen … --once` in a thread; gives where."""
    places: list[str] = []
    ready = threading.Event()
    real = Examined.serve_one

    def serve(self: Examined, timeout_seconds: float | None = None) -> object:
        places.append(str(self.local))
        ready.set()
        return real(self, PATIENCE_SECONDS if timeout_seconds is None else timeout_seconds)

    monkeypatch.setattr(Examined, "serve_one", serve)
    results: list[object] = []
    # The runner of the examined end must not take the other's standard output: it is called below it.
    context = doctor.make_context("doctor", list(arguments))
    thread = threading.Thread(target=lambda: results.append(doctor.invoke(context)), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_SECONDS), "it does not listen"
    yield places[0]
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert results == [0]


def test_alone() -> None:
    result = invoke()
    assert (result.exception, result.return_value) == (None, 0)
    assert "receive buffer" in result.output
    assert re.search(r"Problems: 0, warnings: \d+", result.output)
    document = json.loads(invoke("--json").stdout)
    assert document["status"] in {"ok", "warning"}
    assert (document["peer"], document["paths"]) == (None, [])
    assert {"subject", "status", "seen", "meaning", "remedy"} == set(document["host"]["findings"][0])


def test_a_problem_has_its_exit_code() -> None:
    result = invoke("--address", "192.0.2.77", "--plaintext", "--json")
    assert (result.exception, result.return_value) == (None, 5)
    document = json.loads(result.stdout)
    assert document["status"] == "problem"
    (finding,) = [entry for entry in document["host"]["findings"] if entry["status"] == "problem"]
    assert finding["seen"] == "this host does not have 192.0.2.77"


def test_two_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(monkeypatch, "--listen", "127.0.92.1:0", *OTHER, "--once") as place:
        result = invoke("--peer", place, *ONE, "--dscp", "34,40-41", "--json")
    assert (result.exception, result.return_value) == (None, 0)
    document = json.loads(result.stdout)
    assert (document["host"]["name"], document["peer"]["name"]) == ("one", "other")
    assert [path["remote"] for path in document["paths"]] == ["127.0.92.1", "127.0.92.2"]
    for path in document["paths"]:
        assert 0 < path["round_trip_minimum_seconds"] <= path["round_trip_median_seconds"] < PATIENCE_SECONDS
        assert [(way["sender"], way["receiver"]) for way in path["directions"]] == [
            ("one", "other"),
            ("other", "one"),
        ]
        for way in path["directions"]:
            measured = way["measured"]
            assert measured["dscp_sent"] == "34, 40-41"
            assert len(measured["traffic_bytes"]) == 12
            assert all(entry["sent"] == entry["received"] for entry in measured["traffic_bytes"])
            assert measured["payload_limit_bytes"] == 16_356
            assert [entry["status"] for entry in way["findings"]] == ["ok"] * 4


def test_the_table_is_grouped_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "DATAGRAMS_PER_SECOND", 20_000)
    with listening(monkeypatch, "--listen", "127.0.92.1:0", *OTHER, "--once") as place:
        result = invoke("--peer", f"other={place}", *ONE)
    assert (result.exception, result.return_value) == (None, 0)
    titles = [line for line in result.stdout.splitlines() if line.startswith(("Host", "Path"))]
    assert titles == [
        "Host one",
        "Host other, as it says itself",
        "Path 0: 127.0.91.1 and 127.0.92.1",
        "Path 1: 127.0.91.2 and 127.0.92.2",
    ]
    assert result.stdout.count("all 64 kept") == 4


def test_with_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = Job(tmp_path / "job")
    job.root.mkdir()
    folders = [str(folder_of(job.credentials(name))) for name in ("one", "other")]
    mine = [*ONE[:4], "--keys", folders[0], "--dscp", "34"]
    with listening(monkeypatch, "--listen", "127.0.92.1:0", *OTHER, "--keys", folders[1], "--once") as place:
        with pytest.raises(AgentError, match="names another host"):
            raise invoke("--peer", f"somebody={place}", *mine).exception or AssertionError
        result = invoke("--peer", f"other={place}", *mine)
    assert (result.exception, result.return_value) == (None, 0)
    assert "TLS 1.3, other has proved its name" in result.stdout


def folder_of(credentials: Credentials) -> Path:
    return credentials.key.parent


def test_a_plan_says_paths_and_code_points(tmp_path: Path, lab_plan: Plan) -> None:
    """Its addresses are not this machine's, and that is what is found."""
    plan, file = tmp_path / "plan.yaml", tmp_path / "agent.yaml"
    plan.write_text(dump_yaml(lab_plan))
    file.write_text("schema: mltswitch/agent/v1\nplan: plan.yaml\nname: host1\nplaintext: true\n")
    result = invoke("-c", str(file), "--json")
    assert (result.exception, result.return_value) == (None, 5)
    (finding,) = [
        entry for entry in json.loads(result.stdout)["host"]["findings"] if entry["subject"] == "addresses"
    ]
    assert finding["seen"] == "this host does not have 10.101.0.1, 10.102.0.1"
    points = {dscp for entry in lab_plan.classes[1:] for dscp in entry.dscp}
    assert set(agent_doctor._code_points(None, lab_plan)) == points
    assert not {48, 56} & points


def test_source_routes_are_not_examined(tmp_path: Path, lab_plan: Plan) -> None:
    (tmp_path / "plan.yaml").write_text(dump_yaml(with_mode(lab_plan, "p4")))
    result = invoke("--plan", str(tmp_path / "plan.yaml"), "--name", "host1", "--plaintext", "--json")
    assert result.exception is None
    findings = {entry["subject"]: entry for entry in json.loads(result.stdout)["host"]["findings"]}
    assert (findings["source routes"]["status"], findings["source routes"]["seen"]) == (
        "warning",
        "not examined",
    )


def test_nobody_listens() -> None:
    with (
        nobody_listens("127.0.92.1") as nobody,
        pytest.raises(PeerUnreachableError, match=re.escape(f"nothing listens at {nobody}")),
    ):
        raise invoke("--peer", str(nobody), *ONE).exception or AssertionError


@contextmanager
def strangers(said: bytes) -> Iterator[str]:
    """Who takes connections, says this, and waits; gives where."""
    with socket.create_server(("127.0.92.1", 0)) as listener, ExitStack() as taken:

        def take() -> None:
            connection = taken.enter_context(listener.accept()[0])
            connection.sendall(said)

        with in_background(take):
            yield f"127.0.92.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("has_keys", [False, True])
@pytest.mark.parametrize(
    ("said", "line"),
    [
        (b"", "takes connections at .*, and no doctor speaks there"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "it speaks SSH"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP"),
        (b"220 mail.example ESMTP\r\n", "something else, which says '220 mail|does not speak TLS: it is no"),
    ],
)
def test_something_else_listens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: bytes, line: str, has_keys: bool
) -> None:
    """One line says what that is, and soon: the limit is shortened, not waited for."""
    monkeypatch.setattr(conversation, "GREETING_SECONDS", 0.3)
    options: tuple[str, ...] = ONE[:2]
    if has_keys:
        job = Job(tmp_path / "job")
        job.root.mkdir()
        options += ("--keys", str(folder_of(job.credentials("one"))))
    with strangers(said) as place:
        error = invoke("--peer", f"x={place}", *options).exception
    assert isinstance(error, AgentError)
    assert error.exit_code == 6
    assert re.search(line, str(error))


def test_who_is_refused_is_told_at_the_other_end_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = Job(tmp_path / "job")
    job.root.mkdir()
    folders = [str(folder_of(job.credentials(name))) for name in ("one", "other")]
    lines: list[str] = []
    monkeypatch.setattr(strangers_module, "progress", lines.append)
    with listening(monkeypatch, "--listen", "127.0.92.1:0", *OTHER, "--keys", folders[1], "--once") as place:
        error = invoke("--peer", f"other={place}", *ONE[:4]).exception
        assert "it speaks TLS, and we are in plain text" in str(error)
        mine = [*ONE[:4], "--keys", folders[0], "--dscp", "34"]
        assert invoke("--peer", f"other={place}", *mine).return_value == 0
    [told] = [line for line in lines if line.startswith("not examined: ")]
    assert told.startswith("not examined: peer 127.0.91.1:")
    assert "it speaks plain text, and we have keys" in told


def test_who_scans_ports_fills_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(strangers_module, "progress", lines.append)
    with listening(monkeypatch, "--listen", "127.0.92.1:0", *OTHER, "--once") as place:
        address, _, port = place.rpartition(":")
        for said in [b"SSH-2.0-x\r\n", b"220 \x1b[2J\r\n"] * 30:
            with socket.create_connection((address, int(port))) as stranger:
                stranger.sendall(said)
                while stranger.recv(4096):
                    pass
        assert invoke("--peer", place, *ONE, "--dscp", "34").return_value == 0
    assert len(lines) == 51
    assert {line.split(":")[0] for line in lines[:50]} == {"not examined", "not finished"}
    assert all(line.isprintable() for line in lines)
    assert lines[50] == "more were not let in, and are not told of"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--peer", "a", "--listen", "127.0.0.1"), "exclude each other"),
        (("--once",), "--once goes with --listen"),
        (("--peer", "nonsense.invalid"), "--peer nonsense.invalid: 'nonsense.invalid' is no IP address"),
        (("--peer", "host3=-x"), "is neither an IP address nor a host name"),
        (("--dscp", "34"), "--dscp: means nothing without --peer"),
        (("--data-port", "0"), "--data-port: means nothing without --listen or --peer"),
        (("--peer", "host3=10.0.0.1:99999"), "has no port"),
        (("--peer", "127.0.0.1", "--dscp", "x"), "'x' is not understood"),
        (("--peer", "127.0.0.1", "--dscp", "5-64"), "is no range of 0-63"),
        (("--peer", "127.0.0.1", "--dscp", "9-5"), "is no range of 0-63"),
        (("--peer", "127.0.0.1", "--dscp", ""), "is not understood"),
        (("--keys", "/nowhere"), "no such folder"),
        (("--listen",), "--listen"),
        (("--listen", "192.0.2.1"), "plain text does not leave this machine"),
        (("--address", "127.0.0.1", "--address", "::1"), "all IPv4 or all IPv6"),
    ],
)
def test_one_clear_line(arguments: tuple[str, ...], line: str) -> None:
    with pytest.raises(UserInputError, match=re.escape(line)) as caught:
        raise invoke(*arguments).exception or AssertionError
    assert "\n" not in str(caught.value)


def test_code_points_as_text() -> None:
    assert agent_doctor._code_points("all", None) == tuple(range(64))
    assert agent_doctor._code_points(None, None) == tuple(range(64))
    assert agent_doctor._code_points("34, 0-2,63", None) == (0, 1, 2, 34, 63)
