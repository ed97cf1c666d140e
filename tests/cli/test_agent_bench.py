"""`mltswitch agent bench`: its table and its JSON, of real runs with small tensors."""

import json
from typing import Any

import pytest

from mltswitch.cli.agent_bench import bench


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    bench.main(["--seconds", "1", "--size", "40kB", *arguments], prog_name="bench", standalone_mode=False)
    return capsys.readouterr()


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    out = call(capsys).out
    lines = [line.split() for line in out.splitlines()]
    bursts = [line[1] for line in lines if line[:1] == ["mlt"]]
    assert bursts == ["1", "4", "16", "44", "44", "44"]
    assert sum(line[:1] == ["tcp"] for line in lines) == 1
    assert "Connection with TLS 1.3: " in out
    assert "Of this machine alone" in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(call(capsys, "--json", "--mtu", "9000").out)
    assert {"kernel", "processors", "streams", "tagging_seconds", "tls_handshake"} <= set(document)
    assert [entry["burst_packets"] for entry in document["streams"]] == [1, 4, 7, 7, None, 7]
