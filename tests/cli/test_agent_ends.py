"""What is left, and what is said, where `mltswitch agent send` or `recv` ends before its time."""

import json
import re
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mltswitch.cli.agent_files import Files, check_output
from mltswitch.cli.arrays import write_array
from mltswitch.errors import UserInputError
from mltswitch.hostagent.announced import Progress, RoundResult
from tests.cli.agent_commands import GRADIENTS, Running, files, receiving, run, running
from tests.hostagent.background import eventually
from tests.hostagent.control.peers import nobody_listens

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
        # One more may be complete, and on no disk yet: that is told.
        not_written = re.findall(r"^not written: (\d+\.npy) \(round", err, re.MULTILINE)
        assert [*peer["files"], *not_written] == [f"{entry['round']}.npy" for entry in complete]
        assert len(not_written) <= 1
        assert peer["files"] == [f"{number}.npy" for number in range(1, len(peer["files"]) + 1)]
        assert all((folder / name).exists() for name in peer["files"])
        code, out, err = sender.ends()
    assert code == 6
    assert err.splitlines()[-1].endswith(f"closed the connection: {WHY[number]}")
    document, _, rounds = parsed(out)
    assert f"mltswitch: {document['error']}" == err.splitlines()[-1]
    assert rounds[-1]["error"] == document["error"]


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_sender_says_what_has_arrived(folder: Path, number: signal.Signals) -> None:
    with (
        receiving("-o", "{round}.npy", "--json") as (receiver, place),
        running("send", *ROUNDS, "--to", f"receiver={place}", "--json") as sender,
    ):
        in_the_middle(folder, receiver)
        sender.process.send_signal(number)
        code, out, err = sender.ends()
        assert (code, err.splitlines()[-1]) == (CODES[number], LAST_LINES[number])
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


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_sender_shows_the_rounds_until_then(folder: Path, number: signal.Signals) -> None:
    with (
        receiving("-o", "{round}.npy") as (receiver, place),
        running("send", *ROUNDS, "--to", f"receiver={place}") as sender,
    ):
        in_the_middle(folder, receiver)
        sender.process.send_signal(number)
        code, out, err = sender.ends()
        assert (code, err.splitlines()[-1]) == (CODES[number], LAST_LINES[number])
        [rounds] = re.findall(r"^ receiver +(\d+) +4 ", out, re.MULTILINE)
        assert int(rounds) >= 1
        assert re.search(r"s in all; processor time of this end", out)
        code, out, err = receiver.ends()
    assert (code, err.splitlines()[-1][-len(WHY[number]) :]) == (6, WHY[number])
    assert re.search(r"^ sender +\d+ +4 .*", out, re.MULTILINE)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", ["out.npy", "{round}.npy"])
def test_interrupted_once_more_while_the_file_is_written(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    number: signal.Signals,
) -> None:
    """Nobody waits for the disk then; but what is lost is told."""
    times: list[Path] = []

    def interrupted(path: Path, data: NDArray[Any]) -> None:
        times.append(path)
        signal.raise_signal(number)
        write_array(path, data)

    monkeypatch.setattr("mltswitch.cli.agent_files.write_array", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with nobody_listens() as free:
            place = str(free)
        with running("send", "g.npy", "--to", f"receiver={place}") as sender:
            code, out, err = run(capsys, "recv", "--listen", place, "--data-port", 0, "-o", name)
            sender.ends()
    finally:
        signal.signal(signal.SIGINT, before)
    file = name.format(round=1)
    assert times == [Path(file)] * 2
    assert code == CODES[number]
    assert [line for line in err.splitlines() if line][-2:] == [
        f"not written: {file} (round 1 was complete): {WHY[number]}",
        LAST_LINES[number],
    ]
    assert re.search(r"^ sender +1 +0\.2 .*complete", out, re.MULTILINE)
    assert files(folder) == ["g.npy"]


def test_one_file_that_cannot_be_written_takes_no_other_along(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, progress = Files("{peer}.npy"), Progress()
    for peer in ("one", "two", "three"):
        kept.keep(peer, 1, GRADIENTS)
        progress.note(RoundResult(peer=peer, round_number=1, error=None, statistics=None))
    for peer in ("one", "three"):
        (folder / f"{peer}.npy").mkdir()
    with (
        pytest.raises(UserInputError, match=r"one\.npy: is no regular file") as problem,
        kept.written_at_the_end(),
    ):
        kept.write_last()
    assert kept.written == {"two": ["two.npy"]}
    assert (np.load("two.npy") == GRADIENTS).all()
    kept.tell_lost(progress.until_now(), problem.value)
    assert capsys.readouterr().err.splitlines() == [
        "written: two.npy (round 1)",
        "not written: three.npy (round 1 was complete): is no regular file",
    ]


@pytest.mark.parametrize("number", SIGNALS)
def test_nobody_reads_standard_error_any_more(folder: Path, number: signal.Signals) -> None:
    """As where it goes through `tee`, which Ctrl-C ends, too: files, figures and exit code are as ever."""
    with (
        receiving("-o", "out.npy", "--json", "--trace", "t.jsonl") as (receiver, place),
        running("send", *ROUNDS, "--to", f"receiver={place}"),
    ):
        eventually(lambda: Path("t.jsonl").read_text().count("transfer_ended") >= 4)
        assert receiver.process.stderr is not None
        receiver.process.stderr.close()
        receiver.process.stderr = None
        receiver.process.send_signal(number)
        code, out, _ = receiver.ends()
    assert code == CODES[number]
    [peer] = json.loads(out)["peers"]
    assert len(peer["rounds"]) > 1
    assert peer["files"] == ["out.npy"]
    assert (folder / "out.npy").exists()


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_nobody_takes_what_an_interrupted_run_says(folder: Path, form: tuple[str, ...]) -> None:
    """As in a pipeline, where Ctrl-C ends both: that it was interrupted is what is told."""
    with (
        receiving("-o", "{round}.npy", *form) as (receiver, place),
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


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_before_anybody_is_there_nothing_is_printed(form: tuple[str, ...], number: signal.Signals) -> None:
    with receiving("-o", "out.npy", *form) as (receiver, _):
        receiver.process.send_signal(number)
        code, out, err = receiver.ends()
    assert (code, out) == (CODES[number], "")
    assert err.splitlines()[-1] == LAST_LINES[number]
    assert "written" not in err


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


@pytest.mark.parametrize("output", ["{peer}{round}.npy", "{round}{peer}.npy", "{peer}0{round}.npy"])
def test_names_that_may_be_several_peers_files(folder: Path, output: str) -> None:
    """Round 12 of h1 and round 2 of h11, say."""
    with pytest.raises(UserInputError, match="may name the same file for several peers and rounds"):
        check_output(output, ["h1", "h11"])
    check_output(output, ["h1"])
    check_output(output.replace("}", "}-", 1), ["h1", "h11"])


def test_links_to_one_file_are_no_two_files(folder: Path) -> None:
    (folder / "h2.npy").symlink_to("h1.npy")
    with pytest.raises(UserInputError, match=r"h2\.npy: is the same file as h1\.npy"):
        check_output("{peer}.npy", ["h1", "h2"])
