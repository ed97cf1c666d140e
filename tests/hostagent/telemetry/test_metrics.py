"""The metrics endpoint, as Prometheus sees it."""

import socket
import sys
import time
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.errors import CancelledError
from mltswitch.hostagent.telemetry import metrics
from mltswitch.hostagent.telemetry.metrics import PREFIX
from tests.hostagent.telemetry.examples import Example, ended, learned

ANYWHERE = Endpoint("127.0.0.1", 0)
serve_metrics: Any = metrics.serve_metrics
"""Of an example, which has what it needs of an agent."""


def scraped(endpoint: Endpoint) -> dict[tuple[str, str], float]:
    """Value by name and labels, `direction=send,result=completed`."""
    with urlopen(f"http://{endpoint}/metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            (
                sample.name.removeprefix(PREFIX),
                ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items())),
            ): sample.value
            for family in families
            for sample in family.samples
        }


def test_what_is_scraped() -> None:
    agent = Example()
    agent.tell(ended())  # before the endpoint
    with serve_metrics(agent, ANYWHERE) as endpoint:
        agent.tell(ended())
        agent.tell(ended("deadline_exceeded", "receive"))
        agent.tell(ended(direction="receive"))
        found = scraped(endpoint)
        agent.error = CancelledError("the agent is closed")
        closed = scraped(endpoint)
    assert found["transfers_total", "direction=send,result=completed"] == 2
    assert found["transfers_total", "direction=receive,result=deadline_exceeded"] == 1
    assert found["transferred_bytes_total", "direction=send"] == 2_000_000
    assert found["transferred_bytes_total", "direction=receive"] == 1_000_000
    assert found["resent_packets_total", "direction=receive"] == 200
    assert found["needlessly_resent_packets_total", "direction=send"] == 8
    assert found["receives_ended_total", "ending=percentage"] == 1  # one of the two has failed
    assert found["transfer_duration_seconds_count", "direction=send"] == 1
    assert found["transfer_duration_seconds_sum", "direction=send"] == 2.0
    assert found["rate_bits_per_second", "channel=default,peer=b"] == 8e9
    assert found["base_round_trip_seconds", "channel=default,peer=b"] == 0.0001
    assert found["bottleneck_bits_per_second", "channel=default,peer=b"] == 9e9
    assert found["needless_packets_total", "channel=default,peer=b"] == 6
    for name in ("rate_bits_per_second", "base_round_trip_seconds", "bottleneck_bits_per_second"):
        assert (name, "channel=bulk,peer=b") not in found  # not known over TCP
    assert found["peer_connections", "channel=bulk,peer=b,transport=tcp"] == 1
    assert found["forged_datagrams_total", "channel=default,peer=b"] == 3
    assert found["path_lost_packets_total", "channel=default,path=0,peer=b"] == 10
    assert found["path_state", "channel=default,path=0,peer=b,state=gray"] == 1
    assert found["path_state", "channel=default,path=0,peer=b,state=used"] == 0
    assert found["data_plane_total", "counter=unknown_token"] == 4
    assert not [name for name, _ in closed if name.startswith("path_")]
    assert not agent.observers


def test_links_of_a_job_are_scraped_once_they_are_measured() -> None:
    agent = Example()
    with serve_metrics(agent, ANYWHERE) as endpoint:
        for event in (learned(None, source="c"), learned(3e6), learned(4e6, at_ns=time.monotonic_ns())):
            for observer in agent.observers:
                observer.observe(event)
        found = scraped(endpoint)
    assert found["link_measured_bits_per_second", "source=a,target=b"] == 4e6
    assert 0 <= found["link_measured_age_seconds", "source=a,target=b"] < 60
    assert ("link_measured_bits_per_second", "source=c,target=b") not in found
    assert found["routes_version", ""] == 9
    assert found["routes_refused_total", ""] == 3


def test_it_is_closed_when_left() -> None:
    with serve_metrics(Example(), ANYWHERE) as endpoint:
        pass
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((endpoint.address, endpoint.port), timeout=60)


def test_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(UserInputError, match="open to other machines"),
        serve_metrics(Example(), Endpoint("0.0.0.0", 0)),  # noqa: S104  (that is the point)
    ):
        pass
    with serve_metrics(Example(), Endpoint("0.0.0.0", 0), beyond_loopback=True):  # noqa: S104
        pass
    with (
        serve_metrics(Example(), ANYWHERE) as taken,
        pytest.raises(
            MachineError, match=f"metrics endpoint {taken}: cannot listen there: Address already in use"
        ),
        serve_metrics(Example(), taken),
    ):
        pass
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with (
        pytest.raises(MachineError, match=r"need the package prometheus_client.*mltswitch\[agent\]"),
        serve_metrics(Example(), ANYWHERE),
    ):
        pass
