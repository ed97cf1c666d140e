"""What is left, and what is said, where `mltswitch agent send` or `recv` ends before its time."""

import json
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.agent_commands import GRADIENTS, Running, receiving, running
from tests.hostagent.background import eventually

ROUNDS = ("--random", "4MB", "--rounds", 100_000)
WHY = {signal.SIGINT: "it was interrupted", signal.SIGTERM: "it was told to end"}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("g.npy", GRADIENTS)
    return tmp_path


def parsed(out: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """The document, its one peer, and that one's rounds, which are those that it should have."""
    document = json.loads(out)
    [peer] = document["peers"]
    rounds = peer["rounds"]
    assert [entry["round"] for entry in rounds] == list(range(1, len(rounds) + 1))
    assert not any(entry["error"] for entry in rounds[:-1])
    for entry in rounds[:-1]:
        assert entry["statistics"]["size_bytes"] == 4_000_000
        assert entry["statistics"]["goodput_bps"] > 0
    assert document["seconds"] > 0
    assert document["cpu_seconds"] > 0
    return document, peer, rounds


def in_the_middle(folder: Path, receiver: Running) -> None:
    """Of a round, or of writing one: two are complete."""
    eventually(lambda: (folder / "2.npy").exists() or receiver.process.poll() is not None)
    assert receiver.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("transport", ["mlt", "tcp"])
def test_an_interrupted_receiver_says_what_it_has(
    folder: Path, number: signal.Signals, transport: str
) -> None:
    over = ("--json", "--transport", transport)
    with (
        receiving("-o", "{round}.npy", *over) as (receiver, place),
        running("send", *ROUNDS, "--to", f"receiver={place}", *over) as sender,
    ):
        in_the_middle(folder, receiver)
        receiver.process.send_signal(number)
        code, out, err = receiver.ends()
        assert code == CODES[number], err
        document, peer, rounds = parsed(out)
        assert (document["error"], document["direction"]) == (WHY[number], "receive")
        assert (peer["peer"], peer["tensor"], peer["element_type"]) == ("sender", 0, "float32")
        assert (peer["shape"], peer["size_bytes"]) == ([1_000_000], 4_000_000)
        complete = [entry for entry in rounds if entry["error"] is None]
        assert all(entry["missing_packets"] == entry["missing_elements"] == 0 for entry in complete)
        # One more may be complete, and on no disk yet.
        assert len(complete) - len(peer["files"]) in {0, 1}
        assert peer["files"] == [f"{number}.npy" for number in range(1, len(peer["files"]) + 1)]
        assert all((folder / name).exists() for name in peer["files"])
        code, out, err = sender.ends()
    assert code == 6
    assert err.splitlines()[-1].endswith(f"closed the connection: {WHY[number]}")
    document, _, rounds = parsed(out)
    assert f"mltswitch: {document['error']}" == err.splitlines()[-1]
    assert rounds[-1]["error"] == document["error"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sender_says_what_has_arrived(folder: Path, number: signal.Signals) -> None:
    with (
        receiving("-o", "{round}.npy", "--json") as (receiver, place),
        running("send", *ROUNDS, "--to", f"receiver={place}", "--json") as sender,
    ):
        in_the_middle(folder, receiver)
        sender.process.send_signal(number)
        code, out, err = sender.ends()
        assert code == CODES[number], err
        document, _, sent = parsed(out)
        assert (document["error"], document["direction"]) == (WHY[number], "send")
        code, out, err = receiver.ends()
    assert code == 6
    assert err.splitlines()[-1].endswith(f"closed the connection: {WHY[number]}")
    document, peer, received = parsed(out)
    assert f"mltswitch: {document['error']}" == err.splitlines()[-1]
    complete = [entry for entry in received if entry["error"] is None]
    assert len(complete) == len(peer["files"])
    # What the sender knows to be there is there.
    assert sum(entry["error"] is None for entry in sent) <= len(complete)


def test_a_disk_that_is_full(folder: Path) -> None:
    """A limit of the process stands for it: the kernel writes no longer file."""
    with (
        receiving("-o", "{round}.npy", "--json") as (receiver, place),
        running("send", *ROUNDS, "--to", f"receiver={place}") as sender,
    ):
        in_the_middle(folder, receiver)
        resource.prlimit(receiver.process.pid, resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        code, out, err = receiver.ends()
        assert code == 2, err
        document, peer, rounds = parsed(out)
        failed = f"{len(peer['files']) + 1}.npy"
        assert document["error"] == f"{failed}: cannot be written: File too large"
        assert err.splitlines()[-1] == f"mltswitch: {document['error']}"
        assert not (folder / failed).exists()
        assert rounds[len(peer["files"])]["error"] is None
        code, _, err = sender.ends()
    assert code == 6
    # Names of the receiver's files are nobody else's.
    assert err.splitlines()[-1].endswith("closed the connection: cannot be written: File too large")


def test_nobody_takes_what_an_interrupted_run_says(folder: Path) -> None:
    """As in a pipeline, where Ctrl-C ends both: that it was interrupted is what is told."""
    with (
        receiving("-o", "{round}.npy", "--json") as (receiver, place),
        running("send", *ROUNDS, "--to", f"receiver={place}"),
    ):
        in_the_middle(folder, receiver)
        assert receiver.process.stdout is not None
        receiver.process.stdout.close()
        receiver.process.stdout = None
        receiver.process.send_signal(signal.SIGINT)
        code, _, err = receiver.ends()
    assert code == 130
    assert err.splitlines()[-1] == "mltswitch: interrupted"


def test_before_anybody_is_there_nothing_is_printed() -> None:
    with receiving("--json") as (receiver, _):
        receiver.process.send_signal(signal.SIGINT)
        code, out, err = receiver.ends()
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "mltswitch: interrupted"


def test_refused_before_the_first_round(folder: Path) -> None:
    with (
        receiving("--json", "--maximum", "1kB") as (receiver, place),
        running("send", "g.npy", "--to", f"receiver={place}", "--json") as sender,
    ):
        code, out, err = receiver.ends()
        assert code == 6
        document, peer, rounds = parsed(out)
        assert f"mltswitch: {document['error']}" == err.splitlines()[-1]
        assert (peer["peer"], peer["shape"], peer["files"]) == ("sender", [100, 501], [])
        assert [entry["error"] for entry in rounds] == [document["error"]]
        assert sender.ends()[0] == 6


def test_names_of_files_steer_no_terminal() -> None:
    with (
        receiving("-o", "a\nb\x1b[2J.npy") as (receiver, place),
        running("send", "g.npy", "--to", f"receiver={place}") as sender,
    ):
        assert sender.ends()[0] == 0
        code, out, _ = receiver.ends()
    assert code == 0
    assert r"Written: a\nb\x1b[2J.npy" in out.splitlines()
    assert (np.load("a\nb\x1b[2J.npy") == GRADIENTS).all()


def test_each_peer_has_a_folder_and_a_name_may_be_as_long_as_can_be(folder: Path) -> None:
    (folder / "sender").mkdir()
    name = f"{'x' * 251}.npy"
    with (
        receiving("--from", "sender", "-o", f"{{peer}}/{name}") as (receiver, place),
        running("send", "g.npy", "--to", f"receiver={place}") as sender,
    ):
        assert sender.ends()[0] == receiver.ends()[0] == 0
    assert [entry.name for entry in (folder / "sender").iterdir()] == [name]
