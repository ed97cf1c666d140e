"""What is left, and what is said, where `mltswitch agent send` or `recv` ends before its time."""

import json
import re
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltswitch.app.sending import random_tensor
from mltswitch.wire import ElementType
from tests.cli.agent_commands import GRADIENTS, Running, files, receiving, running
from tests.hostagent.background import eventually

ROUNDS = ("--random", "4MB", "--rounds", 100_000)
WHY = {signal.SIGINT: "it was interrupted", signal.SIGTERM: "it was told to end"}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
LAST_LINES = {
    signal.SIGINT: "mltswitch: interrupted",
    signal.SIGTERM: "mltswitch: told to end (SIGTERM)",
}
SIGNALS = [signal.SIGINT, signal.SIGTERM]


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


@pytest.mark.parametrize("number", SIGNALS)
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
        assert (code, err.splitlines()[-1]) == (CODES[number], LAST_LINES[number])
        document, peer, rounds = parsed(out)
        assert (document["error"], document["direction"]) == (WHY[number], "receive")
        assert (peer["peer"], peer["tensor"], peer["element_type"]) == ("sender", 0, "float32")
        assert (peer["shape"], peer["size_bytes"]) == ([1_000_000], 4_000_000)
        complete = [entry for entry in rounds if entry["error"] is None]
        assert all(entry["missing_packets"] == entry["missing_elements"] == 0 for entry in complete)
        assert peer["files"] == [f"{entry['round']}.npy" for entry in complete]
        # No part of a file is left.
        assert {*files(folder)} == {"g.npy", *peer["files"]}
        assert {np.load(name).nbytes for name in peer["files"]} == {4_000_000}
        code, out, err = sender.ends()
    assert code == 6
    assert "Traceback" not in err
    assert err.splitlines()[-1].endswith(f"has left: {WHY[number]}")
    document, _, rounds = parsed(out)
    assert f"mltswitch: {document['error']}" == err.splitlines()[-1]
    assert rounds[-1]["error"] == document["error"]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_interrupted_sender_says_what_has_arrived(
    folder: Path, number: signal.Signals, form: tuple[str, ...]
) -> None:
    with (
        receiving("-o", "{round}.npy", *form) as (receiver, place),
        running("send", *ROUNDS, "--to", f"receiver={place}", *form) as sender,
    ):
        in_the_middle(folder, receiver)
        sender.process.send_signal(number)
        code, out, err = sender.ends()
        assert (code, err.splitlines()[-1]) == (CODES[number], LAST_LINES[number])
        code, received_out, received_err = receiver.ends()
    assert code == 6
    assert received_err.splitlines()[-1].endswith(f"has left: {WHY[number]}")
    if not form:
        for text, name in ((out, "receiver"), (received_out, "sender")):
            [number_of_rounds] = re.findall(rf"^ {name} +(\d+) +4 ", text, re.MULTILINE)
            assert int(number_of_rounds) >= 2
        return
    document, _, sent = parsed(out)
    assert (document["error"], document["direction"]) == (WHY[number], "send")
    document, peer, received = parsed(received_out)
    assert f"mltswitch: {document['error']}" == received_err.splitlines()[-1]
    complete = [entry for entry in received if entry["error"] is None]
    assert len(complete) == len(peer["files"])
    # What the sender knows to be there is there.
    assert sum(entry["error"] is None for entry in sent) <= len(complete)


@pytest.mark.parametrize("number", SIGNALS)
def test_interrupted_the_last_complete_round_is_kept(folder: Path, number: signal.Signals) -> None:
    """Whole, although the next one was arriving; a line says which round that is."""
    trace = folder / "t.jsonl"
    options = ("--random", "4MB", "--rounds", 100_000)
    with (
        receiving("-o", "out.npy", "--trace", trace) as (receiver, place),
        running("send", *options, "--to", f"receiver={place}") as sender,
    ):
        eventually(lambda: trace.read_text().count("transfer_ended") >= 4)
        receiver.process.send_signal(number)
        code, out, err = receiver.ends()
        assert code == CODES[number], err
        [rounds] = re.findall(r"^ sender +(\d+) +4 ", out, re.MULTILINE)
        [written] = re.findall(r"^written: out\.npy \(round (\d+)\)$", err, re.MULTILINE)
        assert sender.ends()[0] == 6
    assert int(written) in {int(rounds) - 1, int(rounds)}
    assert (np.load("out.npy") == random_tensor(4_000_000, ElementType.FLOAT32)).all()
    assert files(folder) == ["g.npy", "out.npy", "t.jsonl"]


def test_a_sender_that_dies_takes_no_complete_round_with_it(folder: Path) -> None:
    trace = folder / "t.jsonl"
    with receiving("-o", "out.npy", "--trace", trace, "--json") as (receiver, place):
        with running("send", "g.npy", "--rounds", 100_000, "--to", f"receiver={place}") as sender:
            eventually(lambda: trace.read_text().count("transfer_ended") >= 4)
            sender.process.kill()
        code, out, err = receiver.ends()
        assert code == 6, err
    [peer] = json.loads(out)["peers"]
    assert len(peer["rounds"]) > 1
    assert peer["files"] == ["out.npy"]
    assert (np.load("out.npy") == GRADIENTS).all()


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
    assert err.splitlines()[-1].endswith("has left: cannot be written: File too large")


def test_one_file_that_cannot_be_written_takes_no_other_along(folder: Path) -> None:
    options = ("-o", "{peer}.npy", "--from", "one", "--from", "two")
    with receiving(*options) as (receiver, place):
        (folder / "one.npy").mkdir()
        to = ("g.npy", "--to", f"receiver={place}")
        with running("send", *to, "--name", "one") as one, running("send", *to, "--name", "two") as two:
            assert (one.ends()[0], two.ends()[0]) == (0, 0)
            code, _, err = receiver.ends()
    assert code == 2
    assert err.splitlines()[-2:] == [
        "written: two.npy (round 1)",
        "mltswitch: one.npy: is no regular file",
    ]
    assert (np.load("two.npy") == GRADIENTS).all()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_nobody_reads_what_an_interrupted_run_says(folder: Path, stream: str) -> None:
    """As in a pipeline, where Ctrl-C ends both: files and exit code are as ever."""
    with (
        receiving("-o", "{round}.npy", "--json") as (receiver, place),
        running("send", *ROUNDS, "--to", f"receiver={place}"),
    ):
        in_the_middle(folder, receiver)
        getattr(receiver.process, stream).close()
        setattr(receiver.process, stream, None)
        receiver.process.send_signal(signal.SIGINT)
        assert receiver.ends()[0] == 130


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_before_anybody_is_there_nothing_is_printed(form: tuple[str, ...], number: signal.Signals) -> None:
    with receiving("-o", "out.npy", *form) as (receiver, _):
        receiver.process.send_signal(number)
        code, out, err = receiver.ends()
    assert (code, out) == (CODES[number], "")
    assert err.splitlines()[-1] == LAST_LINES[number]
    assert "written" not in err


def test_names_of_files_steer_no_terminal() -> None:
    with (
        receiving("-o", "a\nb\x1b[2J.npy") as (receiver, place),
        running("send", "g.npy", "--to", f"receiver={place}") as sender,
    ):
        assert sender.ends()[0] == 0
        code, _, err = receiver.ends()
    assert code == 0
    assert r"written: a\nb\x1b[2J.npy (round 1)" in err.splitlines()
    assert (np.load("a\nb\x1b[2J.npy") == GRADIENTS).all()
