"""The endpoint, scraped and parsed as Prometheus does."""

import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from typing import Any, cast

import numpy as np
import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.channel import ControlChannel
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.errors import AgentError, CancelledError, DeadlineExceededError
from mltswitch.hostagent.links import Link
from mltswitch.hostagent.telemetry import server, snapshot
from mltswitch.hostagent.telemetry.server import MetricsServer
from mltswitch.hostagent.telemetry.snapshot import (
    OTHER_PEERS,
    AgentSnapshot,
    Ledger,
    PathCounters,
    PeerCounters,
    PeerSnapshot,
    PeerState,
)
from mltswitch.hostagent.telemetry.transfers import SECONDS_BOUNDS, Histogram, TransferCounts
from mltswitch.hostagent.transport.hello import LocalEnd, PathAddress
from mltswitch.hostagent.transport.interfaces import Direction
from tests.hostagent.background import eventually
from tests.hostagent.telemetry.agents import (
    PATIENCE_SECONDS,
    Remembering,
    agent,
    join,
    pair,
    transfer,
)
from tests.hostagent.transport.ends import connection, talk

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from mltswitch.hostagent.telemetry.metrics import PREFIX, AgentCollector

LOOPBACK = Endpoint("127.0.0.1", 0)
ANYWHERE = Endpoint("0.0.0.0", 0)  # noqa: S104  (the test of that)
ROUNDS = 3


class Scrape:
    """Samples by name and labels; the prefix is left out."""

    def __init__(self, endpoint: Endpoint) -> None:
        with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=PATIENCE_SECONDS) as answer:
            assert answer.status == 200
            self.text = answer.read().decode()
        self.families = list(text_string_to_metric_families(self.text))
        self.samples = {
            (sample.name.removeprefix(PREFIX), frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def total(self, name: str, **labels: str) -> float:
        found = [
            value
            for (of, having), value in self.samples.items()
            if of == name and having >= set(labels.items())
        ]
        assert found, f"no {name} with {labels}"
        return sum(found)


@pytest.fixture
def scraped() -> Iterator[tuple[Agent, Agent, MetricsServer, MetricsServer]]:
    with (
        pair() as (sender, receiver),
        MetricsServer(sender, LOOPBACK) as here,
        MetricsServer(receiver, LOOPBACK) as there,
    ):
        yield sender, receiver, here, there


def test_counters_add_up_over_real_transfers(
    scraped: tuple[Agent, Agent, MetricsServer, MetricsServer],
) -> None:
    sender, receiver, here, there = scraped
    done = [transfer(sender, receiver, number) for number in range(1, ROUNDS + 1)]
    sent = [one.statistics for one, _ in done if one.statistics]
    received = [other.statistics for _, other in done if other.statistics]
    packets = sum(entry.packets for entry in sent)
    ours, theirs = Scrape(here.listening_at), Scrape(there.listening_at)
    assert ours.value("up") == theirs.value("up") == 1
    assert ours.total("sent_packets_total", peer="host-b") == sum(entry.packets_sent for entry in sent)
    assert ours.value("resent_packets_total", peer="host-b") == sum(entry.packets_resent for entry in sent)
    assert theirs.total("received_packets_total", peer="host-a") == packets
    assert theirs.value("received_packets_total", peer="host-a", importance="important") == sum(
        entry.important_received or 0 for entry in received
    )
    assert theirs.value("received_bytes_total", peer="host-a") == ROUNDS * 400_012
    assert ours.value("transferred_bytes_total", direction="send") == ROUNDS * 400_012
    for scrape, direction in ((ours, "send"), (theirs, "receive")):
        assert scrape.value("transfers_total", direction=direction, result="completed") == ROUNDS
        assert scrape.value("transfer_duration_seconds_count", direction=direction) == ROUNDS
        assert scrape.value("transfer_goodput_bytes_per_second_count", direction=direction) == ROUNDS
        assert scrape.total("open_transfers") == 0
    assert ours.value("transfer_duration_seconds_sum", direction="send") == pytest.approx(
        sum(entry.seconds for entry in sent)
    )
    # Probes count on paths, and what has left since the last acknowledgement.
    assert ours.total("path_sent_packets_total") >= sum(entry.packets_sent for entry in sent)
    assert theirs.total("path_received_packets_total") >= packets
    assert ours.total("path_state", state="active") == 4
    measured = {labels for name, labels in ours.samples if name == "path_round_trip_seconds"}
    assert measured
    for labels in measured:
        least = ours.value("path_least_round_trip_seconds", **dict(labels))
        assert 0 < least <= ours.value("path_round_trip_seconds", **dict(labels))
    assert ours.value("rate_bytes_per_second", peer="host-b") == 10e9 / 8
    assert ours.value("peer_connections", peer="host-b") == 1
    assert theirs.total("socket_buffer_bytes", direction="receive") > 0
    assert theirs.total("kernel_dropped_datagrams_total") >= 0


def test_names_are_as_prometheus_wants_them(
    scraped: tuple[Agent, Agent, MetricsServer, MetricsServer],
) -> None:
    sender, receiver, here, _ = scraped
    transfer(sender, receiver)
    scrape = Scrape(here.listening_at)
    assert len({family.name for family in scrape.families}) == len(scrape.families)
    for family in scrape.families:
        assert family.name.startswith(PREFIX)
        assert family.documentation.endswith(".")
        assert family.type in {"counter", "gauge", "histogram"}
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total")
            assert set(sample.labels) <= {
                *("peer", "path", "direction", "importance", "result", "state", "port", "le", "version")
            }


def test_counters_outlive_a_connection(scraped: tuple[Agent, Agent, MetricsServer, MetricsServer]) -> None:
    sender, receiver, _, there = scraped
    transfer(sender, receiver)
    before = Scrape(there.listening_at)
    seen = Remembering()
    receiver.observe(seen)
    sender.close()
    eventually(lambda: Scrape(there.listening_at).value("peer_connections", peer="host-a") == 0)
    after = Scrape(there.listening_at)
    for name in ("received_packets_total", "received_bytes_total", "path_received_packets_total"):
        assert after.total(name, peer="host-a") >= before.total(name, peer="host-a") > 0
    with agent("host-a", 63) as again:
        join(again, receiver)
        transfer(again, receiver, 2)
        assert Scrape(there.listening_at).total("received_bytes_total") == 2 * 400_012


def test_failures_are_counted_by_type(scraped: tuple[Agent, Agent, MetricsServer, MetricsServer]) -> None:
    sender, _, here, _ = scraped
    nothing = np.zeros(1, np.float32)
    one = sender.post_send("host-b", nothing, tensor=1, round_number=1, dscp=34)
    one.cancel()
    with pytest.raises(CancelledError):
        one.wait(PATIENCE_SECONDS)
    assert Scrape(here.listening_at).value("transfers_total", direction="send", result="cancelled") == 1


def test_an_agent_that_is_closed_is_not_up() -> None:
    with agent("host-a", 61) as alone, MetricsServer(alone, LOOPBACK) as endpoint:
        alone.close()
        scrape = Scrape(endpoint.listening_at)
        assert scrape.value("up") == 0
        assert not any(name == "sent_packets_total" for name, _ in scrape.samples)
        endpoint.close()
        endpoint.close()
        with pytest.raises(AgentError):
            MetricsServer(alone, LOOPBACK)


def test_an_engine_that_does_not_answer_is_not_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.01)
    goes_on = threading.Event()
    with agent("host-a", 61) as alone, MetricsServer(alone, LOOPBACK) as endpoint:

        def stuck() -> None:
            goes_on.wait(PATIENCE_SECONDS)

        alone._engine.call(stuck)
        try:
            with pytest.raises(DeadlineExceededError):
                alone.snapshot(0.01)
            assert Scrape(endpoint.listening_at).value("up") == 0
        finally:
            goes_on.set()
        eventually(lambda: Scrape(endpoint.listening_at).value("up") == 1)


def test_other_machines_are_an_explicit_choice() -> None:
    with agent("host-a", 61) as alone:
        with pytest.raises(UserInputError, match=r"open to other machines.*--open-metrics.*beyond_loopback"):
            MetricsServer(alone, ANYWHERE)
        with MetricsServer(alone, ANYWHERE, beyond_loopback=True) as endpoint:
            port = endpoint.listening_at.port
            assert Scrape(Endpoint("127.0.0.1", port)).value("up") == 1


def test_an_endpoint_over_ipv6() -> None:
    with agent("host-a", 61) as alone, MetricsServer(alone, Endpoint("::1", 0)) as endpoint:
        assert Scrape(endpoint.listening_at).value("up") == 1


def test_a_port_that_is_taken() -> None:
    with agent("host-a", 61) as alone, MetricsServer(alone, LOOPBACK) as first:
        with pytest.raises(MachineError, match="cannot listen there: Address already in use"):
            MetricsServer(alone, first.listening_at)
        with pytest.raises(UserInputError, match="is not an address of this machine"):
            MetricsServer(alone, Endpoint("203.0.113.7", 0), beyond_loopback=True)
        with pytest.raises(UserInputError, match="is not an IP address"):
            MetricsServer(alone, Endpoint("localhost", 0))


NO_PORT: Any = "0"


@pytest.mark.parametrize("endpoint", ["127.0.0.1:0", None, ("127.0.0.1", 0), Endpoint("127.0.0.1", NO_PORT)])
def test_what_is_no_endpoint(endpoint: Any) -> None:
    with agent("host-a", 61) as alone, pytest.raises(UserInputError, match=r"endpoint: .*expected a"):
        MetricsServer(alone, endpoint)


def test_clients_that_say_nothing_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with agent("host-a", 61) as alone, MetricsServer(alone, LOOPBACK) as endpoint:
        address = endpoint.listening_at.address, endpoint.listening_at.port
        silent = [socket.create_connection(address) for _ in range(server.MAXIMUM_CLIENTS - 1)]
        try:
            assert Scrape(endpoint.listening_at).value("up") == 1
            silent.append(socket.create_connection(address))
            with socket.create_connection(address) as turned_away:
                turned_away.settimeout(PATIENCE_SECONDS)
                assert turned_away.recv(12) == b"HTTP/1.0 503"
        finally:
            for client in silent:
                client.close()
        eventually(lambda: _answers(endpoint.listening_at))


def test_clients_that_say_a_little_now_and_then_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CLIENT_SECONDS", 0.5)
    with agent("host-a", 61) as alone, MetricsServer(alone, LOOPBACK) as endpoint:
        address = endpoint.listening_at.address, endpoint.listening_at.port
        slow = [socket.create_connection(address) for _ in range(server.MAXIMUM_CLIENTS)]
        ended = threading.Event()

        def talk_slowly() -> None:
            while not ended.wait(0.1):
                for client in slow:
                    with suppress(OSError):  # it has been left
                        client.sendall(b"GET / HTTP/1.0\r\nX: y\r\n")

        talker = threading.Thread(target=talk_slowly)
        talker.start()
        try:
            for client in slow:
                client.settimeout(PATIENCE_SECONDS)
                with suppress(ConnectionResetError):
                    while client.recv(100):
                        pass
            eventually(lambda: _answers(endpoint.listening_at))
        finally:
            ended.set()
            talker.join()
            for client in slow:
                client.close()


def test_methods() -> None:
    with agent("host-a", 61) as alone, MetricsServer(alone, LOOPBACK) as endpoint:
        place = endpoint.listening_at
        for method, status, allowed in (
            ("GET", 200, None),
            ("HEAD", 200, None),
            ("POST", 405, "GET, HEAD"),
            ("DELETE", 405, "GET, HEAD"),
            ("BREW", 405, "GET, HEAD"),
        ):
            with closing(HTTPConnection(place.address, place.port, timeout=PATIENCE_SECONDS)) as client:
                client.request(method, "/metrics", b"x" if method == "POST" else None)
                answer = client.getresponse()
                assert (answer.status, answer.headers["Allow"]) == (status, allowed), method
        with socket.create_connection((place.address, place.port)) as client:
            client.settimeout(PATIENCE_SECONDS)
            client.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            said = b"".join(iter(lambda: client.recv(1 << 16), b""))
        assert said.startswith(b"HTTP/1.0 200 ")
        assert said.endswith(b"\r\n\r\n")


def _answers(endpoint: Endpoint) -> bool:
    try:
        return Scrape(endpoint).value("up") == 1
    except OSError:
        return False


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mltswitch.hostagent.telemetry.metrics")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with agent("host-a", 61) as alone, pytest.raises(MachineError, match=r"pip install 'mltswitch\[agent\]'"):
        MetricsServer(alone, LOOPBACK)


def test_lost_packets_that_come_late_do_not_turn_the_counter_back() -> None:
    lost = 5

    def now() -> AgentSnapshot:
        counters = PeerCounters(paths={0: PathCounters(sent_packets=10, lost_packets=lost)})
        return AgentSnapshot("host-a", 0, (PeerSnapshot("host-b", counters, PeerState()),), (), 0)

    collector = AgentCollector(now, TransferCounts())

    def told() -> float:
        (family,) = [entry for entry in collector.collect() if entry.name == PREFIX + "path_lost_packets"]
        return float(family.samples[0].value)

    assert told() == 5
    lost = 3
    assert told() == 5
    lost = 8
    assert told() == 8


def _linked(name: str) -> Link:
    one, other = connection(1), connection(2)
    other._exchange.local = LocalEnd(name, (PathAddress(0, "10.0.0.2", 1),), 1 << 20, 1472, False, 40)
    talk(one, other)
    return Link(cast("ControlChannel", None), None, one)


def test_peers_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MAXIMUM_PEERS", 3)
    ledger = Ledger()
    links = []
    for number in range(6):
        link = _linked("host2")
        link.expected, link.is_welcome = f"peer{number}", True
        links.append(link)
    peers = {entry.peer: entry for entry in ledger.peers(links)}
    assert set(peers) == {"peer0", "peer1", "peer2", OTHER_PEERS}
    assert peers[OTHER_PEERS].state.connections == 3
    assert peers[OTHER_PEERS].state.paths == ()
    for link in links:
        ledger.close(link)
    peers = {entry.peer: entry for entry in ledger.peers([])}
    assert set(peers) == {"peer0", "peer1", "peer2", OTHER_PEERS}
    assert {entry.state.connections for entry in peers.values()} == {0}


def test_histograms_count_as_prometheus_does() -> None:
    histogram = Histogram(SECONDS_BOUNDS)
    for value in (0.00005, 0.0001, 0.00011, 100.0):
        histogram.add(value)
    told = dict(histogram.cumulative())
    assert told["0.0001"] == 2
    assert told["0.00025"] == 3
    assert told["60"] == 3
    assert told["+Inf"] == 4
    assert histogram.total == pytest.approx(100.00026)


def test_counts_that_were_read_do_not_change() -> None:
    counts = TransferCounts()
    before = counts.read()
    before[Direction.SEND].seconds.add(1)
    assert counts.read()[Direction.SEND].seconds.total == 0
