"""The transport `ltp` between real agents: settings, losses, early ends, and what is told of them."""

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent import Agent, AgentConfig
from tests.hostagent.ends import PATIENCE_SECONDS, RECEIVER, SENDER, Make, connect, joined, losing, values

COUNT = 300_000
SMALL: dict[str, Any] = {"mtu_bytes": 1500, "burst_packets": 4}


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("{percentage: 0}", "ltp.percentage: "),
        ("{percentage: 1.5}", "ltp.percentage: "),
        ("{slack_seconds: -0.1}", "ltp.slack_seconds: "),
        ("{slack_seconds: .inf}", "ltp.slack_seconds: "),
        ("{estimator: guess}", "ltp.estimator: "),
        ("{rounds_per_epoch: 0}", "ltp.rounds_per_epoch: "),
        ("{inflight_gain: 0.5}", "ltp.inflight_gain: "),
        ("{streams: 2}", "ltp.streams"),
    ],
)
def test_a_section_names_field_and_place(tmp_path: Path, section: str, text: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(f"transport: ltp\nltp: {section}\n")
    with pytest.raises(UserInputError) as error:
        AgentConfig.load(file)
    assert text in str(error.value)
    file.write_text("transport: mlt\nmlt: {percentage: 0.9}\n")
    with pytest.raises(UserInputError, match=r"mlt\.percentage"):
        AgentConfig.load(file)


def test_a_section_is_of_a_transport_that_the_file_has(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    section = "ltp: {percentage: 0.9}\n"
    for more in ("", "transport: ltp\n", "transport: mlt\nchannels: {gradients: ltp}\n"):
        file.write_text(more + section)
        assert AgentConfig.load(file).section("ltp").percentage == 0.9
    file.write_text(f"transport: tcp\n{section}")
    with pytest.raises(UserInputError, match=r"agent\.yaml:2: ltp: no channel .* has the transport ltp"):
        AgentConfig.load(file)
    assert AgentConfig.load(file, {"transport": "ltp"}).section("ltp").percentage == 0.9
    file.write_text(f"transport: ltp\n{section}")
    assert AgentConfig.load(file, {"transport": "tcp"}).transport == "tcp"


def test_mlt_and_ltp_of_one_agent_share_its_data_port(make: Make) -> None:
    """A second socket could not have it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_one:
        any_one.bind(("127.0.0.1", 0))
        port = any_one.getsockname()[1]
    fields: dict[str, Any] = {"transport": "mlt", "channels": {"gradients": "ltp"}}
    sender, receiver = make(SENDER, **fields), make(RECEIVER, data_port=port, **fields)
    connect(sender, receiver)
    data = values(COUNT)
    for channel in ("default", "gradients"):
        buffer = np.zeros_like(data)
        there = receiver.channel(channel).post_receive(SENDER, buffer, tensor=1)
        sender.channel(channel).post_send(RECEIVER, data, tensor=1).wait(PATIENCE_SECONDS)
        there.wait(PATIENCE_SECONDS)
        assert np.array_equal(buffer, data)


def _rounds(
    sender: Agent, receiver: Agent, count: int, importance: str | None = None, **options: Any
) -> list[Any]:
    found, data = [], values(COUNT)
    for number in range(count):
        buffer = np.full_like(data, 7)
        gather = receiver.gather() if options.get("loss_bound") else None
        there = receiver.post_receive(SENDER, buffer, tensor=1, round_number=number, gather=gather, **options)
        sent = sender.post_send(RECEIVER, data, tensor=1, round_number=number, importance=importance)
        here = sent.wait(PATIENCE_SECONDS)
        completion = there.wait(PATIENCE_SECONDS)
        expected = data.copy()
        for first, end in completion.missing:
            expected[first:end] = 0
        assert np.array_equal(buffer, expected)
        assert here.missing == completion.missing
        found.append((here.statistics, completion.statistics))
    return found


def test_everything_arrives_through_losses(make: Make) -> None:
    sender, receiver = joined(make, transport="ltp", **SMALL)
    with losing(receiver, 0.05), losing(sender, 0.05):
        rounds = _rounds(sender, receiver, 3)
    for here, there in rounds:
        assert (here.ending, there.ending, there.missing_share) == ("complete", "complete", 0)
        assert (there.lt_seconds, there.deadline_seconds, there.packets_needless) == (None, None, None)
        assert 0 <= here.packets_needless <= here.packets_resent
    assert sum(here.packets_resent for here, _ in rounds) > 0
    snapshot = sender.snapshot().peers[RECEIVER]["default"]
    assert snapshot.transport == "ltp"
    assert snapshot.needless_packets == sum(here.packets_needless for here, _ in rounds)
    assert snapshot.base_round_trip_seconds is not None
    assert snapshot.bottleneck_bps is not None
    assert snapshot.rate_bps is not None


@pytest.mark.parametrize(("importance", "critical"), [(None, 2), ("position", 420)])
def test_rounds_end_early_within_their_bound_and_with_all_critical_packets(
    make: Make, importance: str | None, critical: int
) -> None:
    sender, receiver = joined(make, transport="ltp", ltp={"slack_seconds": 0}, **SMALL)
    with losing(receiver, 0.3):
        first = _rounds(sender, receiver, 1, importance, loss_bound=0.2)[0][1]
        for _ in range(20):  # rounds that were much faster: LT has always passed
            receiver.default.history.learn(SENDER, 4 * COUNT, 1_000, 1.0)
        rounds = _rounds(sender, receiver, 40, importance, loss_bound=0.2)
    assert (first.ending, first.lt_seconds) == ("complete", None)  # waits for all
    early = [there for _, there in rounds if there.ending in {"percentage", "deadline"}]
    assert early
    for _, there in rounds:
        assert there.missing_share <= 0.2
        assert there.important_received == critical  # `edges` unless it is said
    for there in early:
        assert there.important_packets == critical  # without knowing it none may end early
        assert there.lt_seconds is not None
        assert there.deadline_seconds is not None
        assert there.deadline_seconds >= there.lt_seconds


@pytest.mark.parametrize(
    ("defaults", "options", "important"),
    [
        ({}, {}, 2),
        ({"loss_bound": 0.1}, {}, 2),
        ({"importance": "all"}, {}, None),
        ({}, {"importance": "none"}, 0),
    ],
)
def test_edges_are_critical_unless_somebody_says_otherwise(
    make: Make, defaults: dict[str, Any], options: dict[str, Any], important: int | None
) -> None:
    sender, receiver = (
        make(SENDER, transport="ltp", defaults=defaults, **SMALL),
        make(RECEIVER, transport="ltp", **SMALL),
    )
    connect(sender, receiver)
    there = receiver.post_receive(SENDER, np.zeros(COUNT, np.float32), tensor=1, loss_bound=0.1)
    found = sender.post_send(RECEIVER, values(COUNT), tensor=1, **options).wait(PATIENCE_SECONDS).statistics
    there.wait(PATIENCE_SECONDS)
    assert found.important_packets == (found.packets if important is None else important)
