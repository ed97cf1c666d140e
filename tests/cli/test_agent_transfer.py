"""`mltswitch agent recv` and `send`: real processes over loopback, and what users get wrong."""

import http.client
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from mltswitch.cli import agent_send
from mltswitch.cli.agent_options import configuration_of, document_of
from mltswitch.cli.agent_send import random_tensor
from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.announced import ANNOUNCEMENT_TENSOR
from mltswitch.hostagent.completions import Transfer
from mltswitch.hostagent.errors import CancelledError
from mltswitch.hostagent.spraying.settings import Policy
from mltswitch.hostagent.telemetry.events import COMPLETED, TransferEnded
from mltswitch.hostagent.telemetry.reading import read_trace
from mltswitch.hostagent.transport.settings import Transport
from mltswitch.plan import Plan
from mltswitch.wire import ElementType
from tests.cli.agent_commands import GRADIENTS, PATIENCE_SECONDS, files, receiving, run, running
from tests.hostagent.background import eventually
from tests.hostagent.control.peers import nobody_listens
from tests.hostagent.namespaces import can_make_namespaces, two_hosts


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("g.npy", GRADIENTS)
    return tmp_path


def test_a_file_arrives(folder: Path) -> None:
    with (
        receiving("-o", "out.npy") as (receiver, place),
        running("send", "g.npy", "--to", f"receiver={place}") as s,
    ):
        code, out, err = s.ends()
        assert code == 0, err
        assert re.search(r"receiver +1 +0\.2 .*complete", out)
        code, out, err = receiver.ends()
    assert code == 0, err
    assert re.search(r"sender +1 +0\.2 .*complete", out)
    assert "Written: out.npy" in out
    assert "connected: sender" in err
    assert (np.load("out.npy") == GRADIENTS).all()
    assert files(folder) == ["g.npy", "out.npy"]


def test_keys_files_rounds_and_two_peers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "keys", "one", "two", "all", "-o", "job")[0] == 0
    Path("all.yaml").write_text(
        yaml.safe_dump(
            {"keys": "job/hosts/all", "listen": "127.0.0.1:0", "authenticate": True, "data_port": 0}
        )
    )
    outputs: dict[str, Any] = {}
    pattern = "{peer}-{round}.npy"
    receiver_options = ("-c", "all.yaml", "--from", "one", "--from", "two", "-o", pattern, "--json")
    with running("recv", *receiver_options, "--loss-bound", "0.1") as receiver:
        place = receiver.reads(r"all listens at (\S+)")[1]
        Path("one.yaml").write_text(yaml.safe_dump({"keys": "job/hosts/one", "peers": {"all": place}}))
        options = ("--random", "100kB", "--type", "bfloat16", "--rounds", 2, "--json", "--layer", 3)
        with (
            running(
                "send", "-c", "one.yaml", "--to", "all", *options, "--policy", "all", "--burst", 4
            ) as one,
            running("send", "--keys", "job/hosts/two", "--to", f"all={place}", "g.npy", "--json") as two,
        ):
            for name, process in (("one", one), ("two", two), ("all", receiver)):
                code, out, err = process.ends()
                assert code == 0, err
                outputs[name] = json.loads(out)
    assert outputs["one"]["burst_packets"] == 4
    assert [entry["round"] for entry in outputs["one"]["peers"][0]["rounds"]] == [1, 2]
    received = {entry["peer"]: entry for entry in outputs["all"]["peers"]}
    assert received["one"]["files"] == ["one-1.npy", "one-2.npy"]
    assert received["one"]["element_type"] == "bfloat16"
    assert received["two"]["shape"] == [100, 501]
    statistics = received["two"]["rounds"][0]["statistics"]
    assert statistics["size_bytes"] == GRADIENTS.nbytes
    assert statistics["goodput_bps"] > 0
    # What may be lost reads as 0, and is counted.
    arrived = np.load("two-1.npy")
    missing = received["two"]["rounds"][0]["missing_elements"]
    assert np.count_nonzero(arrived != GRADIENTS) == np.count_nonzero(arrived == 0) == missing
    assert missing <= GRADIENTS.size / 10
    rounds = [np.load("one-1.npy"), np.load("one-2.npy")]
    assert rounds[0].dtype == np.uint16
    lost = sum(entry["missing_elements"] for entry in received["one"]["rounds"])
    assert np.count_nonzero(rounds[0] != rounds[1]) <= lost


def test_peers_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """On the command line, and in a file; one that nobody knows is named by file and field."""
    with receiving("--from", "one", "--from", "two") as (receiver, place):
        port = place.rpartition(":")[2]
        Path("two.yaml").write_text(yaml.safe_dump({"peers": {"receiver": f"localhost:{port}"}}))
        with (
            running("send", "g.npy", "--name", "one", "--to", f"receiver=localhost:{port}") as one,
            running("send", "g.npy", "--name", "two", "-c", "two.yaml", "--to", "receiver") as two,
        ):
            for end in (one, two, receiver):
                code, _, err = end.ends()
                assert code == 0, err
    Path("far.yaml").write_text(yaml.safe_dump({"peers": {"far": "far.invalid"}}))
    code, out, err = run(capsys, "send", "g.npy", "-c", "far.yaml", "--to", "far")
    assert (code, out) == (2, "")
    [line] = err.splitlines()
    assert line.startswith(
        "mltswitch: far.yaml:2: peers.far: 'far.invalid' is no IP address, and no name with"
    )


NO_OPTIONS: dict[str, Any] = {"name": None, "plan": None, "keys": None, "plaintext": False, "addresses": ()}


def test_options_go_before_the_file(lab_plan: Plan) -> None:
    rack = {"line_rate": "1Gbps", "addresses": ["127.0.0.1"], "mtu_bytes": 9000, "transport": "tcp"}
    file = Path("agent.yaml")
    file.write_text(yaml.safe_dump(rack))
    changes: dict[str, Any] = {
        "mtu_bytes": 1500,
        "line_rate": "25Gbps",
        "spray": "random",
        "transport": "mlt",
    }
    settings = configuration_of(document_of(file, **NO_OPTIONS, **changes), file, "one").settings
    assert settings.rate.cap_bps == 25e9
    assert settings.payload_bytes == 1472
    assert settings.transport is Transport.MLT
    assert settings.spraying.policy is Policy.RANDOM
    Path("plan.yaml").write_text(dump_yaml(lab_plan))
    file.write_text(yaml.safe_dump({"plan": "plan.yaml"}))
    with pytest.raises(UserInputError, match=r"agent\.yaml and options: line_rate is the plan's"):
        document_of(file, **NO_OPTIONS, mtu_bytes=None, line_rate="25Gbps")


@pytest.mark.parametrize(
    ("fields", "transport"),
    [
        ({"tcp": {"streams": 2}, "transport": "tcp"}, "mlt"),
        ({"spraying": {"policy": "random"}, "total_rate": "1Gbps", "buffer": "1MiB"}, "tcp"),
    ],
)
def test_a_file_for_one_transport_serves_the_other_by_an_option(
    fields: dict[str, Any], transport: str
) -> None:
    """So that an experiment changes one thing."""
    file = Path("agent.yaml")
    file.write_text(yaml.safe_dump(fields))
    options: dict[str, Any] = {"mtu_bytes": None, "spray": "random", "transport": transport}
    found = configuration_of(document_of(file, **NO_OPTIONS, **options), file, "one").settings
    assert found.transport == transport
    assert found.spraying.policy is (Policy.RANDOM if transport == "mlt" else Policy.ROUND_ROBIN)
    assert (found.tcp.streams, found.total_rate_bps) == (1, None)


def test_memory_does_not_suffice(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(agent_send, "random_tensor", refused)
    code, _, err = run(capsys, "send", "--random", "17GB", "--to", "a=127.0.0.1")
    assert (code, err) == (
        2,
        "mltswitch: --random: 17GB and what making it takes do not fit into this host's memory\n",
    )


def test_what_tcp_does_not_look_at_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with nobody_listens() as nobody:
        options = ("--wait", "0.1", "--policy", "all", "--burst", 4, "--spray", "random")
        _, _, err = run(capsys, "send", "g.npy", "--to", f"far={nobody}", "--transport", "tcp", *options)
        assert "note: over tcp --spray, --policy, --burst change nothing" in err.splitlines()
        _, _, err = run(capsys, "send", "g.npy", "--to", f"far={nobody}", *options)
        assert "note:" not in err
    here = ("recv", "--listen", "127.0.0.1:0", "--data-port", 0, "--wait", "0.1")
    bounds = ("--loss-bound", "0.1", "--important-loss-bound", "0", "--keep-missing")
    _, _, err = run(capsys, *here, "--transport", "tcp", *bounds)
    assert "note: over tcp --loss-bound, --important-loss-bound, --keep-missing change nothing" in err
    _, _, err = run(capsys, *here, *bounds)
    assert "note:" not in err


def test_a_plan_says_paths_and_classes(lab_plan: Plan) -> None:
    Path("plan.yaml").write_text(dump_yaml(lab_plan))
    for name, place in (("host1", 1), ("host3", 3)):
        fields = {
            "name": name,
            "plan": "plan.yaml",
            "addresses": [f"127.0.8.{place}"],
            "listen": "127.0.8.3:0",
        }
        Path(f"{name}.yaml").write_text(yaml.safe_dump(fields))
    with running("recv", "-c", "host3.yaml", "--from", "host1", "--json") as receiver:
        listening = receiver.reads(r"listens at (\S+)")[1]
        command = ("send", "g.npy", "-c", "host1.yaml", "--to", f"host3={listening}", "--layer", 10, "--json")
        with running(*command) as sender:
            code, out, err = sender.ends()
            assert code == 0, err
            assert json.loads(out)["dscp"] in {
                dscp for entry in lab_plan.gradient_classes for dscp in entry.dscp
            }
            code, out, err = receiver.ends()
            assert code == 0, err
            assert json.loads(out)["peers"][0]["files"] == []


def test_trace_metrics_and_tcp() -> None:
    options = ("--transport", "tcp", "--json", "--metrics", "127.0.0.1:0", "--trace")
    with receiving(*options, "recv.jsonl", "--wait", 60) as (receiver, place):
        [metrics] = re.findall(r"metrics at http://(\S+)/metrics", "".join(receiver.errors))
        page = http.client.HTTPConnection(metrics, timeout=PATIENCE_SECONDS)
        page.request("GET", "/metrics")
        assert b"mltswitch_agent_" in page.getresponse().read()
        page.close()
        with running("send", "g.npy", "--to", f"receiver={place}", *options, "send.jsonl") as sender:
            assert sender.ends()[0] == receiver.ends()[0] == 0
    for name in ("recv.jsonl", "send.jsonl"):
        trace = read_trace(Path(name))
        assert not trace.is_cut
        ended = [event for event in trace.events if isinstance(event, TransferEnded)]
        assert [event.tensor for event in ended] == [ANNOUNCEMENT_TENSOR, 0]


def test_transports_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    """The sender ends; the receiver says who was refused and why, and waits for one that fits."""
    assert run(capsys, "keys", "sender", "receiver", "-o", "job")[0] == 0
    options = ("--keys", "job/hosts/sender", "--wait", 60)
    with (
        receiving("--keys", "job/hosts/receiver", "--from", "sender", "--wait", 600) as (receiver, place),
        running("send", "g.npy", "--to", f"receiver={place}", *options, "--transport", "tcp") as other,
    ):
        code, out, err = other.ends()
        assert (code, out) == (6, ""), err
        assert "the ends use different transports: " in err.splitlines()[-1]
        receiver.reads("^not connected: sender: the ends use different transports: ")
        with running("send", "g.npy", "--to", f"receiver={place}", *options) as sender:
            assert sender.ends()[0] == receiver.ends()[0] == 0


KEYS = {end: ("--keys", f"job/hosts/{end}") for end in ("sender", "receiver")}
IN_PLAIN_TEXT = "it speaks TLS, and we are in plain text: give both ends keys of one job, or neither"


@pytest.mark.parametrize(
    ("receive", "send", "at_receiver", "at_sender"),
    [
        (KEYS["receiver"], (), "it speaks plain text, and we have keys", IN_PLAIN_TEXT),
        (
            (),
            KEYS["sender"],
            IN_PLAIN_TEXT,
            "does not speak TLS 1.3: it may have no keys, and run in plain text",
        ),
        (
            KEYS["receiver"],
            ("--keys", "other/hosts/sender"),
            "does not know the CA of our certificate: we have keys of different jobs",
            "its certificate is not signed by the job's CA",
        ),
        (
            KEYS["receiver"],
            KEYS["receiver"],
            "does not accept our certificate: it may expect another host here",
            "its certificate names another host",
        ),
    ],
)
def test_ends_that_do_not_fit_both_say_why(
    capsys: pytest.CaptureFixture[str],
    receive: tuple[str, ...],
    send: tuple[str, ...],
    at_receiver: str,
    at_sender: str,
) -> None:
    """The sender ends at once, although it would wait; the receiver tells of it and goes on waiting."""
    for job in ("job", "other"):
        assert run(capsys, "keys", "sender", "receiver", "-o", job)[0] == 0
    name = "another" if send == receive else "receiver"
    with (
        receiving(*receive, "--wait", 600) as (receiver, place),
        running("send", "g.npy", "--to", f"{name}={place}", *send, "--wait", 600) as sender,
    ):
        code, out, err = sender.ends()
        assert (code, out) == (6, ""), err
        assert err.splitlines()[-1].startswith(f"mltswitch: peer {name}: {at_sender}")
        receiver.reads(rf"^not connected: 127\.0\.0\.1:\d+: {re.escape(at_receiver)}")
        receiver.process.send_signal(signal.SIGINT)
        assert receiver.ends()[0] == 130


@pytest.mark.root
def test_four_paths_of_two_hosts_by_their_files(capsys: pytest.CaptureFixture[str]) -> None:
    if not can_make_namespaces():
        pytest.skip("network namespaces need root")
    assert run(capsys, "keys", "one", "other", "-o", "job")[0] == 0
    with two_hosts(9000) as hosts:
        for name, host in (("one", hosts.one), ("other", hosts.other)):
            fields = {
                "keys": f"job/hosts/{name}",
                "listen": f"[{host.address6}]:7000",
                "addresses": list(host.aliases6),
                "line_rate": "10Gbps",
                "mtu_bytes": 9000,
                "classes": {"control_dscp": 40, "gradient_dscp": [34, 36], "layers": 10},
                "peers": {"other": f"[{hosts.other.address6}]:7000"},
            }
            Path(f"{name}.yaml").write_text(yaml.safe_dump(fields))
        receive = ("recv", "-c", "other.yaml", "--from", "one", "--json")
        with running(*receive, within=hosts.other.namespace) as receiver:
            receiver.reads("listens at")
            send = ("send", "g.npy", "-c", "one.yaml", "--to", "other", "--layer", 9, "--burst", 1, "--json")
            with running(*send, within=hosts.one.namespace) as sender:
                code, out, err = sender.ends()
                assert code == 0, err
                sent = json.loads(out)
                code, out, err = receiver.ends()
                assert code == 0, err
    assert sent["dscp"] == 36
    [entry] = json.loads(out)["peers"][0]["rounds"]
    [by_class] = entry["statistics"]["classes"]
    assert by_class["dscp"] == 36
    by_path = entry["statistics"]["packets_by_path"]
    assert sum(by_path) == entry["statistics"]["packets"] == -(-GRADIENTS.nbytes // 8912)
    assert max(by_path) - min(by_path) <= 1


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_leaves_no_part_of_a_file(folder: Path, number: signal.Signals, exit_code: int) -> None:
    with receiving("-o", "{round}.npy") as (receiver, place):
        options = ("--random", "4MB", "--rounds", 100_000, "--to", f"receiver={place}")
        with running("send", *options) as sender:
            while not (folder / "2.npy").exists():  # now it is in the middle of a round, or of writing one
                assert receiver.process.poll() is None
                time.sleep(0.01)
            receiver.process.send_signal(number)
            code, _, err = receiver.ends()
            assert code == exit_code
            assert "Traceback" not in err
            written = set(files(folder)) - {"g.npy"}
            assert written == {f"{number}.npy" for number in range(1, len(written) + 1)}
            assert {np.load(name).nbytes for name in written} == {4_000_000}
            code, _, err = sender.ends()
            assert code == 6
            why = "it was interrupted" if number == signal.SIGINT else "it was told to end"
            line = rf"mltswitch: peer receiver, tensor 0, round \d+: closed the connection: {why}"
            assert re.fullmatch(line, err.splitlines()[-1])
            assert "Traceback" not in err


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_the_last_complete_round_is_kept(
    folder: Path, number: signal.Signals, exit_code: int
) -> None:
    """Whole, although the next one was arriving; the trace says which round that is."""
    trace = folder / "t.jsonl"
    options = ("--random", "4MB", "--seed", 7, "--rounds", 100_000)
    with (
        receiving("-o", "out.npy", "--trace", trace) as (receiver, place),
        running("send", *options, "--to", f"receiver={place}") as sender,
    ):
        eventually(lambda: trace.read_text().count("transfer_ended") >= 4)  # it is in the middle of a round
        receiver.process.send_signal(number)
        code, out, err = receiver.ends()
        assert code == exit_code
        [rounds] = re.findall(r"^ sender +(\d+) +4 ", out, re.MULTILINE)
        [written] = re.findall(r"^written: out\.npy \(round (\d+)\)$", err, re.MULTILINE)
        assert sender.ends()[0] == 6
    expected, _ = random_tensor("4MB", 7, ElementType.FLOAT32)
    assert (np.load("out.npy") == expected).all()
    assert files(folder) == ["g.npy", "out.npy", "t.jsonl"]
    ended = [event for event in read_trace(trace).events if isinstance(event, TransferEnded)]
    complete = [event.round_number for event in ended if event.tensor == 0 and event.result == COMPLETED]
    assert complete[-2] <= int(rounds) <= complete[-1] + 1  # the interrupted one, too, if told
    assert int(written) in complete[-2:]  # one more may be complete before the agent is closed


def test_a_sender_that_leaves_takes_no_complete_round_with_it(folder: Path) -> None:
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


def test_an_agent_that_fails_takes_no_complete_round_with_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third round cannot even be posted."""
    real = Agent.post_recv

    def post(agent: Agent, peer: str, data: object, *, round_number: int, **more: Any) -> Transfer:
        if round_number == 3:
            raise CancelledError("the agent's engine has failed; its log says how")
        return real(agent, peer, data, round_number=round_number, **more)

    monkeypatch.setattr(Agent, "post_recv", post)
    with nobody_listens() as free:
        place = str(free)
    with running("send", "g.npy", "--rounds", 5, "--to", f"receiver={place}") as sender:
        code, out, err = run(capsys, "recv", "--listen", place, "--data-port", 0, "-o", "out.npy")
        assert sender.ends()[0] == 6
    assert code == 6
    assert re.search(r"^ sender +2 +0\.2 ", out, re.MULTILINE), out
    assert err.splitlines()[-2:] == [
        "written: out.npy (round 2)",
        "mltswitch: the agent's engine has failed; its log says how",
    ]
    assert (np.load("out.npy") == GRADIENTS).all()


def test_a_deadline_is_an_exit_code_and_one_line(folder: Path) -> None:
    with receiving("-o", "out.npy", "--wait", "0.2", "--from", "nobody") as (receiver, _):
        code, out, err = receiver.ends()
    assert (code, out) == (6, "")
    assert err.splitlines()[-1] == "mltswitch: peer nobody: has not connected within 0.2 s"
    assert files(folder) == ["g.npy"]


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with nobody_listens() as nobody:
        code, out, err = run(capsys, "send", "g.npy", "--to", f"far={nobody}", "--wait", "0.1")
    assert (code, out) == (6, "")
    assert err.splitlines()[-1] == f"mltswitch: peer far: nothing listens at {nobody}: is its agent running?"


def test_nobody_listens_however_often_it_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    with nobody_listens() as nobody:
        code, out, err = run(capsys, "send", "g.npy", "--to", f"far={nobody}", "--wait", "0.6")
    assert (code, out) == (6, "")
    line = rf"peer far: no connection, tried for \d+\.\d s; the last time: nothing listens at {nobody}"
    assert re.search(line, err.splitlines()[-1])


def test_the_receiver_caps_memory(folder: Path) -> None:
    with (
        receiving("-o", "out.npy", "--maximum", "1kB") as (receiver, place),
        running("send", "g.npy", "--to", f"receiver={place}", "--deadline", "20") as sender,
    ):
        code, _, err = receiver.ends()
        line = "no memory for 200,400 B, the tensor that was announced: 1,000 B may be used in all"
        assert code == 6
        assert err.splitlines()[-1].endswith(line)
        code, _, err = sender.ends()
        assert code == 6
        assert err.splitlines()[-1].endswith(f"closed the connection: {line}")
    assert files(folder) == ["g.npy"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("send",), "Missing option '--to'"),
        (("send", "--to", "a=127.0.0.1"), "FILE.npy: a tensor is a file or --random"),
        (
            ("send", "g.npy", "--random", "1kB", "--to", "a=127.0.0.1"),
            "FILE.npy: a tensor is a file or --random",
        ),
        (("send", "none.npy", "--to", "a=127.0.0.1"), "none.npy: cannot be read: No such file"),
        (("send", "ints.npy", "--to", "a=127.0.0.1"), "ints.npy: has int64 elements (expected"),
        (("send", "g.npy", "--type", "int8", "--to", "a=127.0.0.1"), "g.npy: has float32 elements, not int8"),
        (("send", "--random", "1kb", "--to", "a=127.0.0.1"), "--random: '1kb': b means bits"),
        (("send", "--random", "0", "--to", "a=127.0.0.1"), "--random: 0 bytes"),
        (("send", "g.npy", "--to", "a"), "peer a: nobody says where it listens"),
        (("send", "g.npy", "--to", "a=b.invalid"), "peer a: 'b.invalid' is no IP address, and no name"),
        (("send", "g.npy", "--to", "a=10.0.0.300"), "peer a: '10.0.0.300' is neither an IP address nor"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--seed", "2"), "--seed: means nothing without --random"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--line-rate", "fast"), "--line-rate: 'fast' is not"),
        (("recv", "--open-metrics"), "--open-metrics: means nothing without --metrics"),
        (("send", "g.npy", "--to", "=127.0.0.1"), "is not a host name"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--to", "a=127.0.0.2"), "peer a: is named twice"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--layer", "conv1"), "nobody says which layer 'conv1' is"),
        (
            ("send", "g.npy", "--to", "a=127.0.0.1", "--layer", "65536"),
            "--layer: layer 65536 (expected 0-65535)",
        ),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--class", "control"), "cannot travel in class 'control'"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--policy", "best"), "Invalid value for '--policy'"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--burst", "65"), "Invalid value for '--burst'"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--rounds", "0"), "Invalid value for '--rounds'"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--deadline", "0"), "Invalid value for '--deadline'"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--spray", "best"), "Invalid value for '--spray'"),
        (
            ("send", "g.npy", "--to", "a=127.0.0.1", "--name", "a b"),
            "mltswitch: --name: 'a b' is not a host",
        ),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--address", "x"), "--address: 'x' is no IP address"),
        (
            ("send", "g.npy", "--to", "a=127.0.0.1", "--mtu", "1"),
            "--mtu: 1 is too small (expected 576 or more)",
        ),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--keys", "none"), "--keys: none: no such folder"),
        (("send", "g.npy", "--to", "a=10.0.0.1"), "10.0.0.1:18515: plain text does not leave this machine"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "-c", "none.yaml"), "none.yaml: cannot be read"),
        (
            ("send", "g.npy", "--to", "a=127.0.0.1", "-c", "bad.yaml"),
            "bad.yaml:1: nome: there is no such field (expected name)",
        ),
        (("recv", "-o", "none/out.npy"), "none/out.npy: cannot be written: no such folder"),
        (("recv", "-o", "."), "is no regular file"),
        (
            ("recv", "--from", "a", "--from", "b", "-o", "x.npy"),
            "--output: one file for the tensors of 2 peers",
        ),
        (("recv", "--from", "a", "--from", "a"), "--from: each peer is named once"),
        (("recv", "--from", "../a"), "peer ../a: is not a host name"),
        (("recv", "--loss-bound", "1"), "Invalid value for '--loss-bound'"),
        (("recv", "--important-loss-bound", "-0.1"), "Invalid value for '--important-loss-bound'"),
        (("recv", "--maximum", "0"), "--maximum: 0 bytes (expected 1 byte or more)"),
        (("recv", "-o", "{peer}/x.npy", "--from", "a"), "a/x.npy: cannot be written: no such folder"),
        (("recv", "-o", f"{'x' * 245}{{round}}.npy"), "cannot be written: File name too long"),
        (("send", "fifo", "--to", "a=127.0.0.1"), "fifo: is no regular file"),
        (
            ("recv", "-c", "streams.yaml"),
            "streams.yaml:1: tcp: means nothing over mlt (expected",
        ),
        (
            ("recv", "-c", "sprays.yaml"),
            "sprays.yaml:2: spraying: means nothing over tcp (expected",
        ),
        (("recv", "--maximum", "lots"), "--maximum: 'lots' is not understood"),
        (("recv", "--listen", "host1"), "listen: 'host1' is no IP address"),
        (
            ("recv", "--listen", "10.0.0.1", "--plaintext"),
            "line_rate: is missing. Beyond loopback an agent needs a plan (--plan), or a file (-c) with two",
        ),
        (
            ("send", "g.npy", "--plaintext", "--address", "10.0.0.2", "--to", "a=10.0.0.1"),
            "`line_rate: 10Gbps` and `classes: {control_dscp: 0, gradient_dscp: [0]}` (0: of no class)",
        ),
        (
            ("send", "g.npy", "--plaintext", "--to", "a=192.0.2.1"),
            "--address: data from 127.0.0.1 does not leave this machine, and a is at 192.0.2.1:18515",
        ),
        (("send", "g.npy", "--plaintext", "--to", "a=[2001:db8::1]"), "--address: data from 127.0.0.1 does"),
        (("recv", "-c", "keys.yaml"), "mltswitch: keys.yaml:2: keys: none: no such folder"),
        (("recv", "-c", "keys.yaml", "--keys", "k"), "mltswitch: --keys: k: no such folder"),
        (("recv", "-o", "folder/"), "--output: 'folder/' names no file (expected folder/FILE.npy)"),
        (("recv", "-o", ""), "--output: '' names no file (expected FILE.npy)"),
        (("recv", "-o", "link.npy"), "none/x.npy: cannot be written: no such folder"),
        (("recv", "-o", "g.npy/out.npy"), "g.npy/out.npy: cannot be written: no such folder"),
        (("recv", "--keys", "job", "--plaintext"), "keys and plaintext: true exclude each other"),
        (("recv", "--data-port", "0", "--metrics", "192.0.2.1:1"), "is open to other machines"),
        (("recv", "--data-port", "0", "--open-metrics", "--metrics", "192.0.2.1:1"), "192.0.2.1:1"),
        (("recv", "--metrics", "host:1"), "--metrics: 'host:1' is no IP address"),
        (("recv", "--data-port", "0", "--trace", "none/t.jsonl"), "none/t.jsonl"),
        (("recv", "--transport", "quic"), "Invalid value for '--transport'"),
        (("bench", "--size", "1"), "--size: 1 bytes (expected 4-1073741824 bytes)"),
        (("bench", "--size", "1kb"), "--size: '1kb': b means bits"),
        (("bench", "--seconds", "0"), "Invalid value for '--seconds'"),
        (("bench", "--mtu", "100"), "Invalid value for '--mtu'"),
        (("recv", "--wait", "-1"), "Invalid value for '--wait'"),
        (("bench", "--seconds", "nan"), "Invalid value for '--seconds': nan is no number"),
        (("bench", "--seconds", "inf"), "Invalid value for '--seconds': inf is no number"),
        (("recv", "--loss-bound", "nan"), "Invalid value for '--loss-bound': nan"),
        (("recv", "--important-loss-bound", "-nan"), "Invalid value for '--important-loss-bound': nan"),
        (("recv", "--wait", "nan"), "Invalid value for '--wait': nan"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--wait", "nan"), "Invalid value for '--wait': nan"),
        (
            ("send", "g.npy", "--to", "a=127.0.0.1", "--deadline", "NaN"),
            "Invalid value for '--deadline': nan",
        ),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--wait", "infinity"), "Invalid value for '--wait': inf"),
        (("send", "raw.npy", "--to", "a=127.0.0.1"), "Name them with --type"),
        (("send", "g.npy", "--type", "int8", "--to", "a=127.0.0.1"), "or leave --type out"),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--layer", "-1"), "--layer: "),
        (("send", "g.npy", "--to", "a=127.0.0.1", "--class", "best"), "mltswitch: --class: tensors cannot"),
        (("recv", "--listen", "host1"), "mltswitch: --listen: 'host1' is no IP address"),
        (("recv", "-o", "x-{foo}.npy"), "--output: nothing stands for {foo} (expected {peer}, {round}, or"),
        (("recv", "-o", "x-{peer.npy"), "--output: nothing stands for {peer.npy (expected"),
        (("recv", "-o", "x-peer}.npy"), "--output: nothing stands for } (expected"),
        (("recv", "-o", "x-{}.npy"), "--output: nothing stands for {} (expected"),
        (("recv", "-o", "x-{{peer}}.npy"), "--output: nothing stands for { (expected"),
    ],
)
def test_what_users_get_wrong(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: tuple[str, ...], line: str
) -> None:
    np.save("ints.npy", np.arange(3))
    np.save("raw.npy", np.arange(3, dtype=np.uint8))
    os.mkfifo("fifo")
    Path("link.npy").symlink_to("none/x.npy")
    Path("keys.yaml").write_text("name: x\nkeys: none\n")
    Path("bad.yaml").write_text("nome: x\n")
    Path("streams.yaml").write_text("tcp: {streams: 2}\n")
    Path("sprays.yaml").write_text("transport: tcp\nspraying: {policy: random}\n")
    before = files(folder)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    last = err.splitlines()[-1]
    assert last.startswith("mltswitch: ")
    assert line in last
    assert "Traceback" not in err
    assert files(folder) == before


def test_an_address_that_is_not_ours_or_taken(capsys: pytest.CaptureFixture[str]) -> None:
    classes = {"control_dscp": 0, "gradient_dscp": [0]}
    fields = {"addresses": ["192.0.2.1"], "plaintext": True, "line_rate": "1Gbps", "classes": classes}
    Path("foreign.yaml").write_text(yaml.safe_dump(fields))
    options = ("--listen", "127.0.0.1:0", "--data-port", 0)
    code, _, err = run(capsys, "recv", "-c", "foreign.yaml", *options)
    assert code == 2
    assert err.splitlines()[-1].startswith("mltswitch: 192.0.2.1: UDP port 0 cannot be opened: ")
    with receiving() as (_, place):
        code, _, err = run(capsys, "recv", "--listen", place, "--data-port", 0)
    assert code == 3
    last = err.splitlines()[-1]
    assert last.startswith(f"mltswitch: {place}: ")
    assert "cannot listen there" in last


def test_a_plan_and_nobody_says_which_host_this_is(
    capsys: pytest.CaptureFixture[str], lab_plan: Plan
) -> None:
    Path("plan.yaml").write_text(dump_yaml(lab_plan))
    Path("agent.yaml").write_text("plan: plan.yaml\n")
    for arguments, place in ((("-c", "agent.yaml"), "agent.yaml"), (("--plan", "plan.yaml"), "command line")):
        code, out, err = run(capsys, "recv", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith(f"mltswitch: {place}: name: no host 'receiver' in fabric lab, and nothing else")
        assert "(expected one of host1, " in err
        assert "name, --name or keys" in err


def test_a_file_below_a_folder_that_may_not_be_entered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refused)
    code, _, err = run(capsys, "recv", "-o", "closed/x/out.npy")
    assert (code, err) == (2, "mltswitch: closed/x/out.npy: cannot be written: Permission denied\n")
    code, _, err = run(capsys, "recv", "--keys", "closed/keys")
    assert code == 2
    assert err.startswith("mltswitch: --keys: closed/keys: cannot be read: Permission denied. ")
    code, _, err = run(capsys, "doctor", "--keys", "closed/keys")
    assert code == 2
    assert err.startswith("mltswitch: --keys: closed/keys: cannot be read: Permission denied. ")
