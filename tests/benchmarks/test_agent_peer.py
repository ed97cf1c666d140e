"""A benchmark's end of the host agent: what it posts, and what it says of it."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.agent_ends import RECEIVER, Settings, completed, make_bench_keys, sender_name
from benchmarks.agent_peer import Peer, profiled, random_tensor
from benchmarks.agent_port import Ended
from mltswitch.errors import MachineError

SETTINGS = Settings(payload_bytes=1472, line_rate_bps=1e9, name=RECEIVER, senders=2)


class Port:
    """Every transfer ends at once, in the order of posting; one packet in ten is missing."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.posted: list[tuple[str, int, int]] = []
        self.most = most
        self._waiting: list[Ended] = []

    def send(self, peer: str, slot: int, round_number: int, tensor: NDArray[np.float32]) -> None:
        self.posted.append((peer, slot, round_number))
        self._waiting.append(
            Ended(
                peer=peer,
                slot=slot,
                completed_ns=len(self.posted),
                seconds=0.5,
                packets=10,
                packets_received=9,
                packets_sent=12,
                packets_resent=3,
            )
        )

    def receive(
        self, peer: str, slot: int, round_number: int, buffer: NDArray[np.float32], loss_bound: float
    ) -> None:
        self.send(peer, slot, round_number, buffer)

    def ended(self, timeout_seconds: float) -> Ended | None:
        if not self._waiting or self.most == 0:
            return None
        self.most -= 1
        return self._waiting.pop(0)


def test_a_stream_of_a_count() -> None:
    port = Port()
    found = Peer(port, SETTINGS).obey(stream(count=5))
    for name in (sender_name(0), sender_name(1)):
        mine = [(slot, number) for peer, slot, number in port.posted if peer == name]
        assert len(mine) == 5
        assert {slot for slot, _ in mine} == {0, 1}
        assert [number for _, number in mine] == [1, 2, 3, 4, 5]
    assert found["bytes"] == 10 * 4096
    assert found["lost_share"] == pytest.approx(0.1)
    assert found["resent_share"] == 0.25
    assert found["completion_seconds"] == 0.5
    assert found["completed_ns"] == list(range(1, 11))


def test_a_stream_until_an_instant() -> None:
    port = Port()
    now = time.monotonic_ns()
    found = Peer(port, SETTINGS).obey(stream(until_ns=now + 5_000_000))
    assert len(found["completed_ns"]) == len(port.posted) - 4
    assert Peer(Port(), SETTINGS).obey(stream(until_ns=now))["lost_share"] == 0.0


def test_a_stream_that_stops_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.agent_peer.PATIENCE_SECONDS", 0.01)
    with pytest.raises(MachineError, match="3 of 10 tensors"):
        Peer(Port(most=3), SETTINGS).obey(stream(count=5))


def test_one_tensor_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    port = Port()
    command = {"size_bytes": 4096, "loss_bound": 0.1, "senders": [1, 0]}
    found = Peer(port, SETTINGS).obey(command)
    assert capsys.readouterr().out == "posted\n"
    assert port.posted == [("sender1", 0, 1), ("sender0", 0, 1)]
    assert found == {"completed_ns": [1, 2], "missing_share": [pytest.approx(0.1)] * 2}


def test_a_sender_waits_for_the_instant() -> None:
    port = Port()
    settings = Settings(payload_bytes=1472, line_rate_bps=1e9, name=sender_name(0))
    at_ns = time.monotonic_ns() + 2_000_000
    assert Peer(port, settings).obey({"size_bytes": 4096, "at_ns": at_ns, "loss_bound": 0.0}) == {}
    assert time.monotonic_ns() >= at_ns
    assert port.posted == [(RECEIVER, 0, 1)]


def stream(**more: Any) -> dict[str, Any]:
    return {"op": "stream", "size_bytes": 4096, "in_flight": 2, "loss_bound": 0.0, **more}


def test_tensors_are_reproducible() -> None:
    tensor = random_tensor(4096, 3)
    assert tensor.dtype == np.float32
    assert tensor.nbytes == 4096
    assert (tensor == random_tensor(4096, 3)).all()
    assert (tensor != random_tensor(4096, 4)).any()


def test_a_profile_is_written(tmp_path: Path) -> None:
    with profiled(str(tmp_path), "send"):
        pass
    assert (tmp_path / "send.txt").read_text().startswith("send:")
    with profiled("", "send"):
        pass


def test_every_end_has_keys(tmp_path: Path) -> None:
    keys = make_bench_keys(tmp_path / "keys", {RECEIVER: ["10.1.0.9"], sender_name(0): ["10.1.0.1"]})
    assert set(keys) == {RECEIVER, "sender0"}
    assert all(Path(folder).is_dir() for folder in keys.values())


def test_settings_of_every_end() -> None:
    with ExitStack() as stack:
        receiver, sender = completed(stack, SETTINGS, ["10.1.0.9", "10.2.0.9"], [["10.1.0.1", "10.2.0.1"]])
        assert (receiver.name, sender.name) == (RECEIVER, "sender0")
        assert receiver.addresses == ("10.1.0.9", "10.2.0.9")
        assert sender.receiver_address == "10.1.0.9"
        assert receiver.senders == 1
        assert receiver.keys != sender.keys
