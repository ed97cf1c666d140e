"""A middlebox spoils one path: the doctor names that path, that direction and that fault, and no other."""

import random
from collections.abc import Iterator

import pytest

from mltswitch.hostagent.doctor.findings import Status
from mltswitch.hostagent.doctor.settings import DoctorSettings, LocalPath
from mltswitch.hostagent.doctor.verdicts import Report
from tests.hostagent.control.peers import Job
from tests.hostagent.doctor.middlebox import Middlebox, Packet, Rule, middlebox
from tests.hostagent.doctor.pairs import (
    examined_by,
    path_findings,
    problems,
    served,
    settings_of,
)
from tests.hostagent.namespaces import INTERFACE, PATHS, can_make_namespaces, two_hosts

pytestmark = pytest.mark.root

BAD = 2
"""The path that rules spoil, and 1 the host that sends there."""


@pytest.fixture(scope="module")
def between() -> Iterator[Middlebox]:
    if not can_make_namespaces():
        pytest.skip("network namespaces need root")
    with middlebox() as box:
        yield box


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("job"))


def examine_through(box: Middlebox, rule: Rule | None = None, **more: object) -> Report:
    box.rule = rule or (lambda _: True)
    box.counts.clear()
    one = settings_of("client", box.one.aliases, **more)
    other = settings_of("server", box.other.aliases, **more)
    with served(other, box.other.address, entered=box.other.entered) as listener:
        return examined_by(one, listener, entered=box.one.entered)[1]


def is_bad(packet: Packet) -> bool:
    return packet.path == BAD and packet.sender == 1


def test_a_healthy_pair(between: Middlebox) -> None:
    report = examine_through(between)
    assert problems(report) == {}
    assert report.status is not Status.PROBLEM
    for path in report.paths:
        assert path.round_trip_minimum_ns is not None
        assert path.round_trip_median_ns is not None
        assert 0 < path.round_trip_minimum_ns <= path.round_trip_median_ns
        for direction in path.directions:
            measured = direction.measured
            assert measured.payload_limit_bytes == 1472
            assert measured.loss_arrived == measured.loss_sent > 0
            assert sum(measured.received.values()) == 2 * 256
            assert set(measured.received) == {(byte, byte) for byte in range(256)}


def test_both_versions_of_ip(between: Middlebox) -> None:
    between.rule = lambda packet: packet.traffic_byte & 0x3F if is_bad(packet) else True
    one = settings_of("client", between.one.aliases6, payload_bytes=1452, dscp=(10, 34))
    other = settings_of("server", between.other.aliases6, payload_bytes=1452, dscp=(10, 34))
    with served(other, between.other.address6, entered=between.other.entered) as listener:
        _, report = examined_by(one, listener, entered=between.one.entered)
    assert problems(report) == {(BAD, "there"): ["DSCP"]}
    assert report.paths[0].directions[0].measured.payload_limit_bytes == 1452


def test_a_switch_that_bleaches(between: Middlebox) -> None:
    report = examine_through(between, lambda packet: packet.traffic_byte & 3 if is_bad(packet) else True)
    assert problems(report) == {(BAD, "there"): ["DSCP"]}
    (finding,) = path_findings(report, Status.PROBLEM)[BAD, "there"]
    assert finding.seen == "1 of 64 kept; 1-63 → 0 (bleached)"


def test_a_switch_that_remaps_some(between: Middlebox) -> None:
    """AF41 to AF31 on the way back, and CS6 and CS7 to best effort on another path, as it should be."""

    def rule(packet: Packet) -> bool | int:
        dscp, ecn = packet.traffic_byte >> 2, packet.traffic_byte & 3
        if packet.path == BAD and packet.sender == 2 and dscp == 34:
            return 26 << 2 | ecn
        if packet.path == 0 and dscp in {48, 56}:
            return ecn
        return True

    report = examine_through(between, rule)
    assert problems(report) == {(BAD, "back"): ["DSCP"]}
    (finding,) = path_findings(report, Status.PROBLEM)[BAD, "back"]
    assert finding.seen == "63 of 64 kept; 34 → 26"
    warned = path_findings(report, Status.WARNING)
    assert [entry.seen for entry in warned[0, "there"]] == ["62 of 64 kept; 48, 56 → 0 (bleached)"]
    # With the plan's code points alone, nobody asks for the others.
    assert problems(examine_through(between, rule, dscp=(10, 40))) == {}


def test_a_class_that_is_dropped(between: Middlebox) -> None:
    report = examine_through(between, lambda packet: not (is_bad(packet) and packet.traffic_byte >> 2 == 46))
    assert problems(report) == {(BAD, "there"): ["DSCP dropped"]}
    (finding,) = path_findings(report, Status.PROBLEM)[BAD, "there"]
    assert finding.seen == "nothing arrives with 46"


def test_a_switch_that_clears_ecn(between: Middlebox) -> None:
    report = examine_through(between, lambda packet: packet.traffic_byte & 0xFC if is_bad(packet) else True)
    assert set(problems(report)) == {(BAD, "there")}
    seen = [entry.seen for entry in path_findings(report, Status.PROBLEM)[BAD, "there"]]
    assert seen == [f"128 of 128 {name} arrive as Not-ECT" for name in ("ECT(1)", "ECT(0)", "CE")]


@pytest.mark.parametrize(("ecn", "name"), [(0, "Not-ECT"), (2, "ECT(0)")])
def test_an_ecn_code_point_that_is_dropped(between: Middlebox, ecn: int, name: str) -> None:
    report = examine_through(
        between, lambda packet: not (is_bad(packet) and packet.traffic_byte & 3 == ecn), dscp=(10, 34)
    )
    expected = {(BAD, "there"): ["ECN dropped"]}
    if ecn == 2:  # questions are such packets
        expected[BAD, "both"] = ["round trip"]
    assert problems(report) == expected
    (finding,) = path_findings(report, Status.PROBLEM)[BAD, "there"]
    assert finding.seen == f"nothing arrives as {name} (0 of 40 under 10, 34)"
    measured = report.paths[BAD].directions[0].measured
    assert measured.payload_limit_bytes == 1472
    assert measured.loss_arrived == measured.loss_sent > 0


def test_one_code_point_that_was_lost_by_bad_luck(between: Middlebox) -> None:
    """The first two of them, as on a path that loses some."""
    lost: list[Packet] = []

    def rule(packet: Packet) -> bool | int:
        is_lost = is_bad(packet) and packet.traffic_byte == 34 << 2 and len(lost) < 2
        if is_lost:
            lost.append(packet)
        return not is_lost

    assert problems(examine_through(between, rule, dscp=(34,))) == {}
    assert len(lost) == 2


def test_congestion_marks_on_the_way(between: Middlebox) -> None:
    def rule(packet: Packet) -> bool | int:
        marked = is_bad(packet) and packet.traffic_byte & 3 == 2 and packet.number % 3 == 0
        return packet.traffic_byte | 3 if marked else True

    report = examine_through(between, rule)
    assert problems(report) == {}
    (finding,) = [
        entry for entry in path_findings(report, Status.WARNING)[BAD, "there"] if entry.subject == "ECN"
    ]
    assert "ECT(0) arrive as CE" in finding.seen


@pytest.mark.parametrize("mtu", [576, 1280, 1399, 1499])
def test_a_path_with_a_smaller_mtu(between: Middlebox, mtu: int) -> None:
    report = examine_through(
        between, lambda packet: not is_bad(packet) or packet.size_bytes <= mtu, dscp=(34,)
    )
    assert problems(report) == {(BAD, "there"): ["path MTU"]}
    assert report.paths[BAD].directions[0].measured.payload_limit_bytes == mtu - 28
    assert report.paths[BAD].directions[1].measured.payload_limit_bytes == 1472
    (finding,) = path_findings(report, Status.PROBLEM)[BAD, "there"]
    assert f"mtu_bytes: {mtu}" in finding.remedy


def test_a_smaller_mtu_that_the_job_respects(between: Middlebox) -> None:
    report = examine_through(
        between,
        lambda packet: not is_bad(packet) or packet.size_bytes <= 1400,
        dscp=(34,),
        payload_bytes=1372,
    )
    assert problems(report) == {}


def test_a_dead_path(between: Middlebox) -> None:
    report = examine_through(between, lambda packet: packet.path != BAD, dscp=(34,))
    assert problems(report) == {(BAD, "both"): ["round trip"], (BAD, "there"): ["alive"]}
    # In plain text the listening end sends to nobody who has not proved the address.
    (finding,) = path_findings(report, Status.WARNING)[BAD, "back"]
    assert finding.seen.startswith("not examined")


def test_a_path_that_is_dead_one_way_and_keys(between: Middlebox, job: Job) -> None:
    between.rule = lambda packet: not is_bad(packet)
    one = settings_of("client", between.one.aliases, dscp=(34,))
    other = settings_of("server", between.other.aliases, dscp=(34,))
    server = job.identity("server")
    with served(other, between.other.address, server, entered=between.other.entered) as listener:
        result, report = examined_by(one, listener, job.identity("client"), entered=between.one.entered)
    assert result.is_authenticated
    assert problems(report) == {(BAD, "both"): ["round trip"], (BAD, "there"): ["alive"]}
    assert report.paths[BAD].directions[1].measured.loss_arrived > 0


def test_a_path_that_loses_a_twentieth(between: Middlebox) -> None:
    chance = random.Random(7)  # noqa: S311  (the same losses every time)
    report = examine_through(
        between, lambda packet: not (is_bad(packet) and chance.random() < 0.05), dscp=(34,)
    )
    assert problems(report) == {(BAD, "there"): ["loss"]}
    measured = report.paths[BAD].directions[0].measured
    share = 1 - measured.loss_arrived / measured.loss_sent
    assert 0.02 < share < 0.09
    assert measured.payload_limit_bytes == 1472


def test_paths_in_another_order_are_seen(between: Middlebox) -> None:
    """The far end numbers its addresses the other way round, and nothing on the way minds."""
    between.rule = lambda _: True
    one = settings_of("client", between.one.aliases, dscp=(34,))
    other = settings_of("server", between.other.aliases[::-1], dscp=(34,))
    with served(other, between.other.address, entered=between.other.entered) as listener:
        _, report = examined_by(one, listener, entered=between.one.entered)
    assert [path.remote for path in report.paths] == list(between.other.aliases[::-1])
    assert problems(report) == {}


def test_segments_shorten_what_fits() -> None:
    """Each host names a segment of the other's before its address: 40 bytes of every packet."""
    with two_hosts() as hosts:
        ends = {}
        for host, peer in ((hosts.one, hosts.other), (hosts.other, hosts.one)):
            for scope in ("all", INTERFACE):
                host.run("sysctl", "-qw", f"net.ipv6.conf.{scope}.seg6_enabled=1")
            ends[host.place] = DoctorSettings(
                name=f"host{host.place}",
                paths=tuple(LocalPath(alias, 0, (peer.address6,)) for alias in host.aliases6),
                mode="srv6",
                payload_bytes=1412,
                dscp=(34,),
            )
        with served(ends[2], hosts.other.address6, entered=hosts.other.entered) as listener:
            _, report = examined_by(ends[1], listener, entered=hosts.one.entered)
        assert problems(report) == {}
        limits = {way.measured.payload_limit_bytes for path in report.paths for way in path.directions}
        assert limits == {1500 - 40 - 8 - 8 - 2 * 16}


def test_interfaces_that_take_less_on_one_side() -> None:
    """Jumbo frames on the cable; one host's interface was forgotten."""
    with middlebox(mtu=4000) as box:
        box.one.run("ip", "link", "set", "data0", "mtu", "1500")
        report = examine_through(box, dscp=(34,), payload_bytes=3900)
        assert set(problems(report)) == {(path, "there") for path in range(PATHS)}
        there, back = report.paths[0].directions
        assert there.measured.payload_limit_bytes == 1472
        # What a TAP device receives is not held to its MTU.
        assert back.measured.payload_limit_bytes == 3972
        (own,) = [entry for entry in report.host.findings if entry.subject == "data0: MTU"]
        assert own.status is Status.PROBLEM
        assert "payload of 1,472 fits, 3,900 wanted" in own.seen
