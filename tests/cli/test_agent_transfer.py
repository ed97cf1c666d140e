"""`mltswitch agent recv` and `send`: real processes over loopback, and what users get wrong."""

import http.client
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from mltswitch.app.sending import random_tensor
from mltswitch.app.transfer import Announcement
from mltswitch.documents import dump_yaml
from mltswitch.hostagent.errors import TransferMismatchError
from mltswitch.plan import Plan
from mltswitch.wire import ElementType
from tests.cli.agent_commands import GRADIENTS, PATIENCE_SECONDS, files, free_place, receiving, run, running
from tests.hostagent.namespaces import can_make_namespaces, two_hosts


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("g.npy", GRADIENTS)
    return tmp_path


@pytest.mark.parametrize("transport", ["mlt", "tcp"])
def test_a_file_arrives(folder: Path, transport: str) -> None:
    over = ("--transport", transport)
    with (
        receiving("-o", "out.npy", *over) as (receiver, place),
        running("send", "g.npy", "--to", f"receiver={place}", *over) as sender,
    ):
        code, out, err = sender.ends()
        assert code == 0, err
        assert re.search(r"receiver +1 +0\.2 .*complete", out)
        code, out, err = receiver.ends()
    assert code == 0, err
    assert re.search(r"sender +1 +0\.2 .*complete", out)
    assert err.splitlines()[-2:] == ["connected: sender", "written: out.npy (round 1)"]
    assert (np.load("out.npy") == GRADIENTS).all()
    assert files(folder) == ["g.npy", "out.npy"]


def test_keys_files_rounds_and_two_peers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "keys", "one", "two", "all", "-o", "job")[0] == 0
    Path("all.yaml").write_text(yaml.safe_dump({"keys": "job/hosts/all", "listen": "127.0.0.1:0"}))
    outputs: dict[str, Any] = {}
    options = ("-c", "all.yaml", "--from", "one", "--from", "two", "-o", "{peer}-{round}.npy", "--json")
    with running("recv", *options, "--loss-bound", "0.1") as receiver:
        place = receiver.reads(r"all listens at (\S+)")[1]
        Path("one.yaml").write_text(yaml.safe_dump({"keys": "job/hosts/one", "peers": {"all": place}}))
        more = ("--random", "100kB", "--type", "bfloat16", "--rounds", 2, "--layer", 3, "--burst", 4)
        with (
            running("send", "-c", "one.yaml", "--to", "all", *more, "--policy", "all", "--json") as one,
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
    [entry] = received["two"]["rounds"]
    assert entry["statistics"]["size_bytes"] == GRADIENTS.nbytes
    assert entry["statistics"]["goodput_bps"] > 0
    # What may be lost reads as 0, and is counted, at both ends.
    arrived, missing = np.load("two-1.npy"), entry["missing_elements"]
    assert np.count_nonzero(arrived != GRADIENTS) == np.count_nonzero(arrived == 0) == missing
    assert outputs["two"]["peers"][0]["rounds"][0]["missing_packets"] == entry["missing_packets"]
    drawn = random_tensor(100_000, ElementType.BFLOAT16)
    assert np.load("one-1.npy").dtype == np.uint16
    assert np.count_nonzero(np.load("one-2.npy") != drawn) <= len(drawn) / 10


def test_numbers_of_every_kind_keep_their_type_and_shape() -> None:
    kinds: dict[str, NDArray[Any]] = {
        "c": np.ones((2, 3), np.complex64),
        "u": np.arange(7, dtype=np.uint16),
        "i": np.arange(4),
    }
    for name, data in kinds.items():
        np.save(f"{name}.npy", data)
        with (
            receiving("-o", "out.npy") as (receiver, place),
            running("send", f"{name}.npy", "--to", f"receiver={place}") as sender,
        ):
            assert (sender.ends()[0], receiver.ends()[0]) == (0, 0)
        found = np.load("out.npy")
        assert (found.dtype, found.shape) == (data.dtype, data.shape)
        assert (found == data).all()


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
    assert err.startswith("mltswitch: far.yaml: peers.far: 'far.invalid' is no IP address, and no name with")


def test_a_stranger_is_refused_and_told_of() -> None:
    with receiving("--from", "one") as (receiver, place):
        with running("send", "g.npy", "--name", "other", "--to", f"receiver={place}") as other:
            code, out, err = other.ends()
        assert (code, out) == (6, "")
        assert err.splitlines()[-1].endswith("other is not expected here (--from)")
        receiver.reads("^not connected: other: other is not expected here")
        with running("send", "g.npy", "--name", "one", "--to", f"receiver={place}") as one:
            assert (one.ends()[0], receiver.ends()[0]) == (0, 0)


def test_ends_that_do_not_fit_both_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    """The sender ends at once, although it would wait; the receiver tells of it and goes on waiting."""
    for job in ("job", "other"):
        assert run(capsys, "keys", "sender", "receiver", "-o", job)[0] == 0
    ours = ("--keys", "job/hosts/sender")
    with receiving("--keys", "job/hosts/receiver", "--from", "sender") as (receiver, place):
        to = ("g.npy", "--to", f"receiver={place}", "--wait", 600)
        for options, here, there in (
            ((*ours, "--transport", "tcp"), "transport tcp at one end", "sender: .*transport"),
            (("--keys", "other/hosts/sender"), "not signed by the job's CA", r"127\.0\.0\.1:?\d*: "),
        ):
            with running("send", *to, *options) as sender:
                code, out, err = sender.ends()
            assert (code, out) == (6, ""), err
            assert here in err.splitlines()[-1]
            receiver.reads(f"^not connected: {there}")
        with running("send", *to, *ours) as sender:
            assert (sender.ends()[0], receiver.ends()[0]) == (0, 0)


def test_options_precede_the_file_and_a_plan_says_paths_and_classes(lab_plan: Plan) -> None:
    Path("plan.yaml").write_text(dump_yaml(lab_plan))
    for name, place in (("host1", 1), ("host3", 3)):
        fields = {
            "name": name,
            "plan": "plan.yaml",
            "addresses": [f"127.0.8.{place}"],
            "listen": "127.0.8.3:0",
        }
        Path(f"{name}.yaml").write_text(yaml.safe_dump(fields | {"transport": "tcp"}))
    with running("recv", "-c", "host3.yaml", "--from", "host1", "--json", "--transport", "mlt") as receiver:
        listening = receiver.reads(r"listens at (\S+)")[1]
        options = ("--layer", 10, "--json", "--transport", "mlt", "--mtu", 1400)
        with running("send", "g.npy", "-c", "host1.yaml", "--to", f"host3={listening}", *options) as sender:
            code, out, err = sender.ends()
            assert code == 0, err
            sent = json.loads(out)
            code, out, err = receiver.ends()
            assert code == 0, err
    assert sent["dscp"] in {dscp for entry in lab_plan.gradient_classes for dscp in entry.dscp}
    [peer] = json.loads(out)["peers"]
    assert peer["files"] == []
    assert peer["rounds"][0]["statistics"]["packets"] > GRADIENTS.nbytes / 1400


def test_trace_and_metrics() -> None:
    options = ("--json", "--metrics", "127.0.0.1:0", "--trace")
    with receiving(*options, "recv.jsonl") as (receiver, place):
        [metrics] = re.findall(r"metrics at http://(\S+)/metrics", "".join(receiver.errors))
        page = http.client.HTTPConnection(metrics, timeout=PATIENCE_SECONDS)
        page.request("GET", "/metrics")
        assert b"mltswitch_agent_" in page.getresponse().read()
        page.close()
        with running("send", "g.npy", "--to", f"receiver={place}", *options, "send.jsonl") as sender:
            assert (sender.ends()[0], receiver.ends()[0]) == (0, 0)
    for name in ("recv.jsonl", "send.jsonl"):
        events = [json.loads(line) for line in Path(name).read_text().splitlines()]
        assert [event["tensor"] for event in events if event["event"] == "transfer_ended"] == [0]


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
                assert json.loads(out)["dscp"] == 36
                code, out, err = receiver.ends()
                assert code == 0, err
    by_path = json.loads(out)["peers"][0]["rounds"][0]["statistics"]["packets_by_path"]
    assert sum(by_path) >= GRADIENTS.nbytes / 9000
    assert max(by_path) - min(by_path) <= 1


def test_no_compiled_data_plane() -> None:
    """One line and exit code 3; the transport tcp needs none."""
    hidden = "import sys; sys.modules['mltswitch.hostagent.dataplane._dataplane'] = None\n"
    Path("sitecustomize.py").write_text(hidden)
    path = {"PYTHONPATH": os.pathsep.join([".", *filter(None, [os.environ.get("PYTHONPATH")])])}
    with running("send", "g.npy", "--to", f"far={free_place()}", environment=path) as sender:
        code, out, err = sender.ends()
    assert (code, out) == (3, "")
    assert "the host agent's compiled data plane was not built" in err.splitlines()[-1]
    over = ("--transport", "tcp")
    with (
        receiving("-o", "out.npy", *over, environment=path) as (receiver, place),
        running("send", "g.npy", "--to", f"receiver={place}", *over, environment=path) as sender,
    ):
        assert (sender.ends()[0], receiver.ends()[0]) == (0, 0)
    assert (np.load("out.npy") == GRADIENTS).all()


def test_the_receiver_caps_memory(folder: Path) -> None:
    with (
        receiving("-o", "out.npy", "--maximum", "1kB", "--json") as (receiver, place),
        running("send", "g.npy", "--to", f"receiver={place}", "--json") as sender,
    ):
        line = "no memory for 200,400 B that were announced: 1,000 B may be used in all"
        code, out, err = receiver.ends()
        assert (code, err.splitlines()[-1].endswith(line)) == (6, True)
        [peer] = json.loads(out)["peers"]
        assert (peer["shape"], peer["files"], len(peer["rounds"])) == ([100, 501], [], 1)
        code, _, err = sender.ends()
        assert (code, err.splitlines()[-1].endswith(f"has left: {line}")) == (6, True)
    assert files(folder) == ["g.npy"]


@pytest.mark.parametrize(
    "message",
    [
        b"{",
        b'{"rounds": 1}',
        b'{"version": 3, "rounds": 1, "element_type": "int8", "dtype": "|i1", "shape": [1]}',
        b'{"rounds": 1, "element_type": "int8", "dtype": "|O8", "shape": [1]}',
        b'{"rounds": 1, "element_type": "int8", "dtype": "|b16", "shape": [1]}',
        b'{"rounds": 1, "element_type": "int8", "dtype": "|i1", "shape": [0]}',
        b'{"rounds": 1, "element_type": "float64", "dtype": "|i1", "shape": [7]}',
        b'{"rounds": 1, "element_type": "int8", "dtype": "|i1", "shape": [4294967296, 4294967296]}',
    ],
)
def test_announcements_that_cannot_be_used(message: bytes) -> None:
    with pytest.raises(TransferMismatchError, match="its announcement cannot be used"):
        Announcement.decoded(message, "peer")


def test_nobody_is_there(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    place = free_place()
    code, out, err = run(capsys, "send", "g.npy", "--to", f"far={place}", "--wait", "0.1")
    assert (code, out) == (6, "")
    assert err.splitlines()[-1].startswith(f"mltswitch: peer far: cannot be reached at {place}: ")
    here = ("recv", "-o", "out.npy", "--listen", "127.0.0.1:0", "--wait", "0.2")
    code, out, err = run(capsys, *here, "--from", "nobody")
    assert (code, out) == (6, "")
    assert err.splitlines()[-1] == "mltswitch: peer nobody: not connected within 0.2 s"
    assert run(capsys, *here)[2].splitlines()[-1] == "mltswitch: nobody has connected within 0.2 s"
    assert files(folder) == ["g.npy"]


TO = ("send", "g.npy", "--to", "a=127.0.0.1")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("send",), "Missing option '--to'"),
        ((*TO, "--random", "1kB"), "FILE.npy: a tensor is a file or --random"),
        (("send", "none.npy", "--to", "a=127.0.0.1"), "none.npy: cannot be read: No such file"),
        (("send", "raw.npy", "--type", "float32", "--to", "a=127.0.0.1"), "raw.npy: 3 bytes are no whole"),
        (("send", "--random", "1kb", "--to", "a=127.0.0.1"), "--random: '1kb': b means bits"),
        (("send", "g.npy", "--to", "a"), "peer a: nobody says where it listens"),
        (("send", "g.npy", "--to", "a=b.invalid"), "peer a: 'b.invalid' is no IP address, and no name"),
        ((*TO, "--to", "a=127.0.0.2"), "peer a: is named twice"),
        ((*TO, "--line-rate", "fast"), "--line-rate: 'fast' is not"),
        ((*TO, "--layer", "conv1"), "--layer: there is no layer or tensor 'conv1'"),
        ((*TO, "--layer", "65536"), "--layer: there is no layer 65536"),
        ((*TO, "--burst", "65"), "--burst: "),
        ((*TO, "--deadline", "nan"), "Invalid value for '--deadline': nan"),
        ((*TO, "--name", "a b"), "mltswitch: --name: 'a b' is not a host"),
        ((*TO, "--address", "x"), "--address: 'x' is no IP address"),
        ((*TO, "--mtu", "1"), "--mtu: must be at least 576"),
        ((*TO, "--keys", "none"), "none/key.pem: cannot be read: No such file"),
        (("send", "g.npy", "--to", "a=10.0.0.1"), "peer a: plain text does not leave this machine"),
        (("send", "g.npy", "--plaintext", "--to", "a=192.0.2.1"), "--address: data from 127.0.0.1 does not"),
        ((*TO, "-c", "none.yaml"), "none.yaml: cannot be read"),
        ((*TO, "-c", "bad.yaml"), "bad.yaml:1: nome: "),
        (("recv", "--open-metrics"), "--open-metrics: means nothing without --metrics"),
        (("recv", "-o", "none/out.npy"), "none/out.npy: cannot be written: no such folder"),
        (
            ("recv", "-o", "link.npy"),
            "link.npy: is a link to none/x.npy, which is not followed (expected a regular file",
        ),
        (("recv", "-o", "x-{foo}.npy"), "--output: nothing stands for {foo}: write {peer}, {round}, or"),
        (("recv", "--from", "a", "--from", "b", "-o", "x.npy"), "--output: one file for the tensors of 2"),
        (("recv", "--from", "../a"), "peer ../a: is not a host name"),
        (("recv", "--loss-bound", "1"), "Invalid value for '--loss-bound'"),
        (("recv", "--maximum", "lots"), "--maximum: 'lots' is not understood"),
        (("recv", "--listen", "host1"), "--listen: 'host1' is no IP address"),
        (
            ("recv", "--listen", "10.0.0.1", "--plaintext"),
            "is missing. Beyond loopback an agent needs a plan",
        ),
        (("recv", "--keys", "job", "--plaintext"), "keys and plaintext: true exclude each other"),
        (("recv", "--metrics", "192.0.2.1:1"), "is open to other machines"),
        (("bench", "--size", "1"), "--size: 1 bytes (expected 4 to 1073741824)"),
    ],
)
def test_what_users_get_wrong(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: tuple[str, ...], line: str
) -> None:
    np.save("raw.npy", np.arange(3, dtype=np.uint8))
    Path("link.npy").symlink_to("none/x.npy")
    Path("bad.yaml").write_text("nome: x\n")
    before = files(folder)
    if arguments[0] == "recv" and not {"--listen", "-c"} & {*arguments}:
        arguments = (*arguments, "--listen", "127.0.0.1:0")
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    last = err.splitlines()[-1]
    assert last.startswith("mltswitch: ")
    assert line in last
    assert files(folder) == before


def test_an_address_that_is_not_ours_or_taken(capsys: pytest.CaptureFixture[str]) -> None:
    classes = {"control_dscp": 0, "gradient_dscp": [0]}
    fields = {"addresses": ["192.0.2.1"], "plaintext": True, "line_rate": "1Gbps", "classes": classes}
    Path("foreign.yaml").write_text(yaml.safe_dump(fields))
    code, _, err = run(capsys, "recv", "-c", "foreign.yaml", "--listen", "127.0.0.1:0")
    assert (code, "192.0.2.1" in err.splitlines()[-1]) == (3, True)
    with receiving() as (_, place):
        code, _, err = run(capsys, "recv", "--listen", place)
    assert (code, err.splitlines()[-1].startswith(f"mltswitch: {place}: cannot listen")) == (3, True)


def test_bench(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("bench", "--seconds", 1, "--size", "40kB")
    code, out, err = run(capsys, *small)
    assert code == 0, err
    assert [line.split()[1] for line in out.splitlines() if line.startswith((" mlt", " tcp"))] == [
        *("1", "4", "16", "most", "most", "-")
    ]
    document = json.loads(run(capsys, *small, "--transport", "ltp", "--transport", "tcp", "--json")[1])
    assert [entry["transport"] for entry in document["streams"]] == ["ltp"] * 3 + ["tcp"]
    assert all(entry["goodput_bps"] > 0 for entry in document["streams"])
