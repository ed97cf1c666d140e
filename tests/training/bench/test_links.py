"""What TCP finds of a network: rates, losses and round trips of hosts that are threads on loopback."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mltswitch.errors import MachineError
from mltswitch.training.bench import links
from mltswitch.training.bench.links import Links, Prober, interface_of, line_bps, own_address


class Meeting:
    """Gives each of some threads what all have said."""

    def __init__(self, count: int) -> None:
        self._said: list[Any] = [None] * count
        self._barrier = threading.Barrier(count, timeout=30)

    def of(self, rank: int) -> links.Gather:
        def gathered(value: Any) -> list[Any]:
            self._said[rank] = value
            self._barrier.wait()
            found = [*self._said]
            self._barrier.wait()
            return found

        return gathered


@pytest.mark.parametrize("hosts", [2, 3])
def test_all_hosts_find_the_same(hosts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALONE_SECONDS", "GENTLE_SECONDS", "TOGETHER_SECONDS"):
        monkeypatch.setattr(links, name, 0.5)
    monkeypatch.setattr(links, "BEGINNING_SECONDS", 0.1)
    monkeypatch.setattr(links, "line_bps", lambda address: 1e12 if address == "127.0.0.2" else None)
    meeting = Meeting(hosts)

    def part(rank: int) -> Links:
        with Prober(rank, f"127.0.0.{rank + 2}", meeting.of(rank)) as prober:
            return prober.measure()

    with ThreadPoolExecutor(hosts) as pool:
        found = [*pool.map(part, range(hosts))]
    assert len({*found}) == 1
    one = found[0]
    assert (one.hosts, one.line_bps) == (hosts, 1e12)
    assert 0 < one.round_trip_seconds < 0.1
    assert min(one.alone_bps, one.ring_bps, one.incast_bps) > 1e6
    assert 0 <= one.loss_share < 0.1
    assert 0 <= one.steadiness <= 1


def test_a_flow_keeps_to_its_rate_and_says_what_it_sent_again() -> None:
    meeting = Meeting(2)

    def part(rank: int) -> Any:
        with Prober(rank, f"127.0.0.{rank + 2}", meeting.of(rank)) as prober:
            return prober._flows({0: 1}, 2.0, 8e6)

    with ThreadPoolExecutor(2) as pool:
        (flow,), (same,) = pool.map(part, range(2))
    assert flow == same
    assert flow.rate_bps == pytest.approx(8e6, rel=0.3)
    assert flow.segments > 0
    assert flow.retransmitted <= flow.segments


def test_a_host_that_does_not_listen_is_named() -> None:
    with socket.create_server(("127.0.0.4", 0)) as gone:
        place = gone.getsockname()
    with (
        Prober(0, "127.0.0.2", lambda own: [own, place]) as prober,
        pytest.raises(MachineError, match=r"rank 0: cannot connect to 127\.0\.0\.4"),
    ):
        prober.measure()


def test_addresses_and_interfaces() -> None:
    assert own_address("127.0.0.1") == "127.0.0.1"
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.77") is None
    assert line_bps("127.0.0.1") is None, "loopback has no speed"
