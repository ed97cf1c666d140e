"""An agent's settings refuse what cannot work."""

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.spraying.modes import ByAddress, BySegments, BySourcePort, BySourceRoute
from mltswitch.hostagent.spraying.settings import SprayingSettings
from mltswitch.hostagent.tcp.settings import TcpSettings
from mltswitch.hostagent.telemetry.events import AgentEvent
from mltswitch.hostagent.transport.rate import RateSettings
from mltswitch.hostagent.transport.settings import ConnectionSettings, Transport


def settings(*addresses: str, **changed: Any) -> AgentSettings:
    usual: dict[str, Any] = {
        "name": "host-a",
        "security": Plaintext(),
        "rate": RateSettings.for_network(1e9, queue_bytes=0),
        "control_dscp": 40,
    }
    return AgentSettings(**(usual | {"addresses": addresses} | changed))


@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::ffff:0.0.0.0"])  # noqa: S104  (refused)
def test_data_goes_over_given_addresses_alone(address: str, transport: Transport) -> None:
    with pytest.raises(ValueError, match="means all networks of this machine"):
        settings("127.0.0.1", address, transport=transport)


@pytest.mark.parametrize("address", ["224.0.0.1", "255.255.255.255", "ff02::1", "::ffff:239.1.2.3"])
def test_data_goes_to_this_host_alone(address: str) -> None:
    with pytest.raises(UserInputError, match=f"^addresses: '{address}' means several hosts"):
        settings("127.0.0.1", address)


def test_names_are_no_addresses() -> None:
    with pytest.raises(UserInputError, match="localhost: is not an IP address"):
        settings("localhost")


@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("size_bytes", [0, 63, 65_508, 1500.0])
def test_packets_that_no_peer_accepts(size_bytes: int, transport: Transport) -> None:
    with pytest.raises(UserInputError, match=r"^payload_bytes: .*expected a whole number, 64 to 65507"):
        settings("127.0.0.1", transport=transport, payload_bytes=size_bytes)


@pytest.mark.parametrize("size_bytes", [64, 65_507])
def test_the_least_and_the_longest_packets_are_accepted(size_bytes: int) -> None:
    assert settings("127.0.0.1", payload_bytes=size_bytes).payload_bytes == size_bytes


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("nap_seconds", value) for value in (-1, NAN, INFINITE, 1.1, "0", None, True)),
        *(("data_port", value) for value in (-1, 65_536, 70_000, NAN, "1", None, True, 1.0)),
        *(("control_dscp", value) for value in (-1, 64, "x", None, True)),
        *(("buffer_bytes", value) for value in (-1, 0, 1 << 31, NAN, 65_536.0, None, True)),
        *(("expected_peers", value) for value in (-1, 0, 1 << 31, 1.0, NAN, "1", None, True)),
        *(("payload_bytes", value) for value in (None, True)),
        *(("name", value) for value in ("", None, 5, "a" * 256, "\udc00", b"host-a")),
    ],
)
def test_values_that_cannot_be(name: str, value: object) -> None:
    with pytest.raises(UserInputError, match=f"^{name}: "):
        settings("127.0.0.1", **{name: value})


@pytest.mark.parametrize("value", [-1, NAN, INFINITE, "1e9", True])
def test_rates_for_all_peers_that_cannot_be(value: object) -> None:
    with pytest.raises(ValueError, match="for all peers"):
        settings("127.0.0.1", total_rate_bps=value)


@pytest.mark.parametrize(
    ("place", "held"),
    [
        ("connection.handshake_ns", ConnectionSettings(handshake_ns=0)),
        ("connection.least_chunk_packets", ConnectionSettings(least_chunk_packets=0)),
        ("connection.maximum_tensors", ConnectionSettings(maximum_tensors=0)),
        ("connection.nudge_ns", ConnectionSettings(nudge_ns=-1)),
        ("connection.silence_ns", ConnectionSettings(silence_ns=INFINITE)),  # type: ignore[arg-type]
        ("connection.maximum_transfers", ConnectionSettings(maximum_transfers=True)),
        ("connection.chunk_packets", ConnectionSettings(chunk_packets=NAN)),  # type: ignore[arg-type]
        ("spraying.stall_ns", SprayingSettings(stall_ns=INFINITE)),  # type: ignore[arg-type]
        ("spraying.grey_threshold", SprayingSettings(grey_threshold=INFINITE)),
        ("spraying.dead_probes", SprayingSettings(dead_probes=True)),
        ("tcp.streams", TcpSettings(streams=True)),
        ("tcp.unsent_bytes", TcpSettings(unsent_bytes=1.5)),  # type: ignore[arg-type]
        ("rate.cap_bps", replace(RateSettings.for_network(1e9, queue_bytes=0), cap_bps=INFINITE)),
        ("rate.hyperactive_factor", replace(RateSettings.paper_100g(), hyperactive_factor=NAN)),
        ("spray.segments", ByAddress(segments=-1)),
    ],
)
def test_values_that_settings_within_cannot_have(place: str, held: object) -> None:
    with pytest.raises(UserInputError, match=rf"^{place}: "):
        settings("127.0.0.1", **{place.partition(".")[0]: held})


def test_ports_of_all_paths() -> None:
    assert settings("127.0.0.1", "127.0.0.1", spray=BySourcePort(), data_port=65_534).data_port == 65_534
    with pytest.raises(ValueError, match="2 paths have ports from 65535 on, beyond 65535"):
        settings("127.0.0.1", "127.0.0.1", spray=BySourcePort(), data_port=65_535)


def test_spray_modes_have_no_numbers_that_are_refused() -> None:
    routes = BySourceRoute("eth0", "02:00:00:00:00:01", {"host-b": ((1, 2),)})
    for spray in (routes, BySegments((("fc00::1",),))):
        assert settings("10.0.0.1", spray=spray).spray is spray


def test_numbers_of_numpy_become_pythons() -> None:
    made = settings(
        "127.0.0.1", data_port=np.int64(0), payload_bytes=np.uint16(1000), nap_seconds=np.float32(0)
    )
    assert type(made.data_port) is type(made.payload_bytes) is int


class Told:
    def observe(self, event: AgentEvent) -> None:
        """An observer is whatever has this."""


@pytest.mark.parametrize("transport", Transport)
def test_a_transport_is_known_by_its_name(transport: Transport) -> None:
    assert settings("127.0.0.1", transport=transport.value).transport is transport
    assert settings("127.0.0.1", transport=transport).transport is transport


def test_what_holds_of_a_transport_holds_of_its_name() -> None:
    with pytest.raises(ValueError, match="over TCP there is no spraying"):
        settings("127.0.0.1", "127.0.0.1", transport="tcp", spray=BySourcePort())


@pytest.mark.parametrize("value", ["udp", "TCP", "", None, 5, b"tcp", ["tcp"], Transport])
def test_transports_that_there_are_not(value: object) -> None:
    with pytest.raises(UserInputError, match=r"^transport: there is no .*\(expected mlt, tcp\)$"):
        settings("127.0.0.1", transport=value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("security", None, "TlsIdentity or Plaintext"),
        ("security", Plaintext, "TlsIdentity or Plaintext"),
        ("rate", None, "RateSettings"),
        ("rate", 1e9, "RateSettings"),
        ("spray", None, "ByAddress or BySegments or BySourcePort or BySourceRoute"),
        ("spray", BySourcePort, "ByAddress or BySegments or BySourcePort or BySourceRoute"),
        ("two_queues", 1, "TwoQueues or None"),
        ("authenticate", "no", "bool"),
        ("tcp", None, "TcpSettings"),
        ("connection", None, "ConnectionSettings"),
        ("spraying", None, "SprayingSettings"),
        ("spraying", "random", "SprayingSettings"),
        ("catch_reuse", None, "bool"),
        ("observers", (1,), "what has `observe`"),
        ("observers", (Told(), None), "what has `observe`"),
        ("observers", Told(), "a tuple or a list"),
        ("observers", None, "a tuple or a list"),
        ("addresses", (None,), "IP addresses, as text"),
        ("addresses", (2130706433,), "IP addresses, as text"),
        ("addresses", (ip_address("127.0.0.1"),), "IP addresses, as text"),
        ("addresses", "127.0.0.1", "a tuple or a list"),
        ("addresses", {"127.0.0.1"}, "a tuple or a list"),
        ("addresses", {"127.0.0.1": 1}, "a tuple or a list"),
        ("addresses", None, "a tuple or a list"),
        ("listen", "127.0.0.1:0", "an Endpoint: an IP address and a port"),
        ("listen", ("127.0.0.1", 0), "an Endpoint: an IP address and a port"),
    ],
)
def test_values_of_other_types(name: str, value: Any, expected: str) -> None:
    usual = settings("127.0.0.1", listen=Endpoint("127.0.0.1", 0))
    with pytest.raises(UserInputError) as refused:
        replace(usual, **{name: value})
    assert (refused.value.where, refused.value.expected) == (name, expected)


@pytest.mark.parametrize("port", ["0", None, True, -1, 65_536])
def test_ports_that_nobody_can_listen_at(port: Any) -> None:
    with pytest.raises(UserInputError, match=r"^port of listen: "):
        settings("127.0.0.1", listen=Endpoint("127.0.0.1", port))


def test_truth_values_may_be_numpys() -> None:
    made = settings("127.0.0.1", authenticate=np.bool_(True), catch_reuse=np.bool_(False))
    assert (made.authenticate, made.catch_reuse) == (True, False)
    assert type(made.authenticate) is bool


def test_lists_are_copied() -> None:
    addresses, observers = ["127.0.0.1", "127.0.0.2"], [Told()]
    made = settings(addresses=addresses, observers=observers)
    first = observers.pop()
    addresses.clear()
    assert made.addresses == ("127.0.0.1", "127.0.0.2")
    assert made.observers == (first,)


def test_as_many_paths_as_a_peer_takes() -> None:
    assert len(settings(*["127.0.0.1"] * 256).addresses) == 256
    with pytest.raises(UserInputError, match=r"^addresses: 257 of them \(expected 256 or fewer\)$"):
        settings(*["127.0.0.1"] * 257)
