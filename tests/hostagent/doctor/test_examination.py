"""Two agents examine the paths between them: over loopback, and through a middlebox that does its worst."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.doctor.examination import CHANNEL, Examiner
from mltswitch.hostagent.doctor.report import Finding, Report, Status
from mltswitch.hostagent.errors import PeerRefusedError, PeerUnreachableError
from tests.hostagent.background import in_background
from tests.hostagent.doctor.middlebox import Packet, Rule, middlebox
from tests.hostagent.namespaces import Host, can_make_namespaces

PATIENCE_SECONDS = 60.0
POINTS = (0, 34, 46)
CLASSES = {"control_dscp": 40, "gradient_dscp": [34]}


@contextmanager
def opened(
    name: str,
    addresses: Sequence[str],
    *,
    channels: Sequence[str] = (CHANNEL,),
    entered: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[Agent]:
    config = AgentConfig.model_validate(
        {
            "name": name,
            "addresses": addresses,
            "listen": f"{addresses[0]}:0",
            "plaintext": True,
            "line_rate": "1Gbps",
            "classes": CLASSES,
            "mtu_bytes": 1500,
        }
    )
    with entered():
        agent = Agent(config)
    with agent:
        for channel in channels:
            agent.channel(channel)
        yield agent


def examined(
    one: Agent,
    other: Agent,
    points: Sequence[int] = POINTS,
    *,
    entered: Sequence[Callable[[], AbstractContextManager[None]]] = (nullcontext, nullcontext),
) -> Report:
    """What the first one finds, with the second one serving."""

    def serve() -> None:
        with entered[1]():
            peer = other.wait_for_any_peer(PATIENCE_SECONDS)
            Examiner(other, peer, [Finding(Status.OK, "here", "seen")]).serve()

    one.engine.connect(other.name, other.listening_at, PATIENCE_SECONDS)
    with in_background(serve) as served, entered[0]():
        report = Examiner(one, other.name).report(points)
        one.disconnect(other.name)
        served()
    return report


def troubles(report: Report) -> dict[tuple[str, int], list[str]]:
    """What is not ok, by sender and path."""
    return {
        (path.sender, path.path): lines
        for path in report.paths
        if (
            lines := [
                f"{each.status} {each.where}: {each.what}"
                for each in path.findings
                if each.status != Status.OK
            ]
        )
    }


def test_over_loopback() -> None:
    with (
        opened("one", ["127.0.93.1", "127.0.93.2"]) as one,
        opened("other", ["127.0.94.1", "127.0.94.2"]) as other,
    ):
        report = examined(one, other, range(64))
    assert troubles(report) == {}
    assert report.exit_code == 0
    assert report.peer_machine == (Finding(Status.OK, "here", "seen"),)
    assert [(path.sender, path.receiver, path.path, path.local, path.remote) for path in report.paths] == [
        ("one", "other", 0, "127.0.93.1", "127.0.94.1"),
        ("one", "other", 1, "127.0.93.2", "127.0.94.2"),
        ("other", "one", 0, "127.0.94.1", "127.0.93.1"),
        ("other", "one", 1, "127.0.94.2", "127.0.93.2"),
    ]
    for path in report.paths:
        assert path.longest_packet_bytes == 1500
        assert path.sent_packets >= 200
        assert path.round_trip_seconds is not None
        assert [finding.what for finding in path.findings if finding.where == "DSCP"] == ["0-63 kept"]


def test_an_agent_that_is_no_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltswitch.hostagent.doctor.examination.ANSWER_SECONDS", 0.3)
    with opened("one", ["127.0.93.1"]) as one, opened("other", ["127.0.94.1"], channels=()) as other:
        one.engine.connect(other.name, other.listening_at, PATIENCE_SECONDS)
        with pytest.raises(PeerRefusedError, match="is an agent, and no doctor"):
            Examiner(one, other.name).report(POINTS)


def on(path: int, sender: int, treatment: Callable[[Packet], bool | int]) -> Rule:
    return lambda packet: treatment(packet) if (packet.path, packet.sender) == (path, sender) else True


CASES: dict[str, tuple[Rule, dict[tuple[str, int], list[str]]]] = {
    "nothing": (lambda _: True, {}),
    "DSCP is bleached": (
        on(1, 1, lambda packet: packet.traffic_byte & 3),
        {("one", 1): ["error DSCP: 34, 46 arrive as 0: switches behind it serve them as others"]},
    ),
    "ECN is cleared": (
        on(0, 2, lambda packet: packet.traffic_byte & 0xFC),
        {
            ("other", 0): [
                "error ECN: ECT(0) arrives as Not-ECT in DSCP 0, 34, 46: "
                "important packets are dropped as others"
            ]
        },
    ),
    "Not-ECT becomes ECT": (
        on(0, 1, lambda packet: packet.traffic_byte | 2),
        {
            ("one", 0): [
                "error ECN: Not-ECT arrives as ECT(0) in DSCP 0, 34, 46: unimportant packets are spared"
            ]
        },
    ),
    "everything is marked": (
        on(0, 1, lambda packet: packet.traffic_byte | 1 if packet.traffic_byte & 2 else True),
        {
            ("one", 0): [
                "warning ECN: ECT(0) arrives as CE in DSCP 0, 34, 46: switches mark without congestion"
            ]
        },
    ),
    "a class is dropped": (
        on(1, 2, lambda packet: packet.traffic_byte >> 2 != 46),
        {
            ("other", 1): [
                "error ECN: no Not-ECT packets of DSCP 46 arrive",
                "error ECN: no ECT(0) packets of DSCP 46 arrive",
            ]
        },
    ),
    "long packets vanish": (
        on(1, 1, lambda packet: packet.size_bytes <= 1400),
        {("one", 1): ["error MTU: packets of 1,500 bytes vanish; up to 1,400 arrive"]},
    ),
    "a path is dead": (
        on(1, 1, lambda _: False),
        {("one", 1): ["error path: no packet arrives: agents leave the path out"]},
    ),
}


@contextmanager
def behind(host: Host, name: str) -> Iterator[Agent]:
    with opened(name, host.aliases[:2], entered=host.entered) as agent:
        yield agent


@pytest.mark.root
@pytest.mark.skipif(not can_make_namespaces(), reason="needs root")
@pytest.mark.parametrize("case", CASES)
def test_what_a_middlebox_does_is_found(case: str) -> None:
    rule, expected = CASES[case]
    with middlebox() as box, behind(box.one, "one") as one, behind(box.other, "other") as other:
        box.rule = rule
        report = examined(one, other, entered=(box.one.entered, box.other.entered))
    assert troubles(report) == expected
    assert report.exit_code == (
        6 if any("error" in line for lines in expected.values() for line in lines) else 0
    )


@pytest.mark.root
@pytest.mark.skipif(not can_make_namespaces(), reason="needs root")
def test_losses_are_counted() -> None:
    with middlebox() as box, behind(box.one, "one") as one, behind(box.other, "other") as other:
        box.rule = on(0, 1, lambda packet: packet.number % 10 != 9)
        report = examined(one, other, entered=(box.one.entered, box.other.entered))
    [(place, [line])] = troubles(report).items()
    assert place == ("one", 0)
    assert line.startswith("error loss: ")
    path = report.paths[0]
    assert 0.05 < path.lost_packets / path.sent_packets < 0.2


@pytest.mark.root
@pytest.mark.skipif(not can_make_namespaces(), reason="needs root")
def test_a_way_that_carries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltswitch.hostagent.doctor.examination.ANSWER_SECONDS", 1.0)
    with middlebox() as box, behind(box.one, "one") as one, behind(box.other, "other") as other:
        box.rule = lambda packet: packet.sender == 1
        one.engine.connect(other.name, other.listening_at, PATIENCE_SECONDS)
        with pytest.raises(PeerUnreachableError, match="no path carries messages both ways"):
            Examiner(one, other.name).report(POINTS)
