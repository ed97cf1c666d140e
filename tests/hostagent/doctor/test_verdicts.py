"""What figures mean: each fault has its name, and nothing else is blamed."""

import errno
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.doctor.clocks import STEP_NS, ClockChange, ClockWatch, clock_quality
from mltswitch.hostagent.doctor.datagrams import Datagram, Kind
from mltswitch.hostagent.doctor.examination import Direction
from mltswitch.hostagent.doctor.findings import Finding, Status, worst
from mltswitch.hostagent.doctor.keys import keys_finding
from mltswitch.hostagent.doctor.messages import Run
from mltswitch.hostagent.doctor.tally import Tally
from mltswitch.hostagent.doctor.verdicts import clock_findings, direction_findings, ranges
from tests.hostagent.control.peers import Job

IP_UDP_BYTES = 28


def sound(**changes: object) -> Direction:
    """Everything arrives as it was sent."""
    direction = Direction(
        sent=Counter(dict.fromkeys(range(256), 2)),
        received=Counter({(byte, byte): 2 for byte in range(256)}),
        loss_sent=500,
        loss_arrived=500,
        loss_payload_bytes=1472,
        payload_limit_bytes=1472,
        sender_limit_bytes=1473,
    )
    for name, value in changes.items():
        setattr(direction, name, value)
    return direction


def bad(direction: Direction, payload_bytes: int = 1472) -> list[tuple[str, Status, str]]:
    found = direction_findings(direction, IP_UDP_BYTES, payload_bytes)
    return [(entry.subject, entry.status, entry.seen) for entry in found if entry.status is not Status.OK]


def test_a_sound_path() -> None:
    assert bad(sound()) == []
    assert all(entry.meaning == entry.remedy == "" for entry in direction_findings(sound(), 28, 1472))


def changed(rule: dict[int, int]) -> Counter[tuple[int, int]]:
    """By DSCP."""
    return Counter({(byte, rule.get(byte >> 2, byte >> 2) << 2 | byte & 3): 2 for byte in range(256)})


@pytest.mark.parametrize(
    ("rule", "status", "seen"),
    [
        ({34: 0}, Status.PROBLEM, "63 of 64 kept; 34 → 0 (bleached)"),
        ({10: 0, 11: 0, 12: 0, 34: 26}, Status.PROBLEM, "60 of 64 kept; 10-12 → 0 (bleached); 34 → 26"),
        ({48: 0, 56: 0}, Status.WARNING, "62 of 64 kept; 48, 56 → 0 (bleached)"),
        ({48: 0, 1: 0}, Status.PROBLEM, "62 of 64 kept; 1, 48 → 0 (bleached)"),
    ],
)
def test_remapped_code_points(rule: dict[int, int], status: Status, seen: str) -> None:
    assert bad(sound(received=changed(rule))) == [("DSCP", status, seen)]


def test_code_points_that_are_changed_now_and_then() -> None:
    received = changed({})
    received[34 << 2, 0] = 1
    ((subject, status, seen),) = bad(sound(received=received))
    assert (subject, status, seen) == (
        "DSCP",
        Status.PROBLEM,
        "63 of 64 kept; 34 → 0 (bleached), some of them",
    )


def test_code_points_that_vanish() -> None:
    received = Counter({pair: count for pair, count in changed({}).items() if pair[0] >> 2 not in {46, 47}})
    assert bad(sound(received=received)) == [("DSCP dropped", Status.PROBLEM, "nothing arrives with 46-47")]


def test_ecn_cleared_for_one_class_alone() -> None:
    received = changed({})
    for ecn in (1, 2, 3):
        received[34 << 2, 34 << 2] += received.pop((34 << 2 | ecn, 34 << 2 | ecn))
        received[34 << 2 | ecn, 34 << 2] = 2
        received[34 << 2, 34 << 2] -= 2
    found = bad(sound(received=received))
    assert {subject for subject, _, _ in found} == {"ECN"}
    assert all("of DSCP 34" in seen for _, _, seen in found)
    assert len(found) == 3


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (0, 2, Status.PROBLEM),
        (0, 3, Status.PROBLEM),
        (2, 0, Status.PROBLEM),
        (1, 0, Status.PROBLEM),
        (3, 0, Status.PROBLEM),
        (3, 2, Status.PROBLEM),
        (2, 3, Status.WARNING),
        (1, 3, Status.WARNING),
        (2, 1, Status.WARNING),
    ],
)
def test_every_change_of_ecn(before: int, after: int, status: Status) -> None:
    received = Counter(
        {(byte, byte & 0xFC | (after if byte & 3 == before else byte & 3)): 2 for byte in range(256)}
    )
    ((subject, found, seen),) = bad(sound(received=received))
    assert (subject, found) == ("ECN", status)
    assert seen.startswith("128 of 128 ")


@pytest.mark.parametrize(
    ("ecn", "status", "name"),
    [
        (0, Status.PROBLEM, "Not-ECT"),
        (1, Status.WARNING, "ECT(1)"),
        (2, Status.PROBLEM, "ECT(0)"),
        (3, Status.PROBLEM, "CE"),
    ],
)
def test_ecn_code_points_that_vanish(ecn: int, status: Status, name: str) -> None:
    received = Counter({pair: count for pair, count in changed({}).items() if pair[0] & 3 != ecn})
    direction = sound(received=received)
    assert bad(direction) == [("ECN dropped", status, f"nothing arrives as {name} (0 of 128 under 0-63)")]
    assert "ECN" not in {entry.subject for entry in direction_findings(direction, IP_UDP_BYTES, 1472)}


def test_one_byte_that_vanishes() -> None:
    received = changed({})
    del received[34 << 2, 34 << 2]
    direction = sound(received=received)
    direction.sent[34 << 2] = 20
    assert bad(direction) == [
        ("ECN dropped", Status.PROBLEM, "nothing arrives as Not-ECT (0 of 20 under 34)")
    ]


def test_a_class_of_routing_protocols_that_loses_one_ecn_code_point() -> None:
    received = changed({})
    del received[48 << 2, 48 << 2]
    ((subject, status, _),) = bad(sound(received=received))
    assert (subject, status) == ("ECN dropped", Status.WARNING)


@settings(max_examples=60)
@given(st.integers(0, 500))
def test_loss(lost: int) -> None:
    found = bad(sound(loss_arrived=500 - lost))
    expected = Status.OK if lost == 0 else Status.WARNING if lost < 5 else Status.PROBLEM
    assert [(subject, status) for subject, status, _ in found] == ([("loss", expected)] if lost else [])


def test_what_the_receiver_dropped_itself_is_no_fault_of_the_path() -> None:
    ((subject, status, _),) = bad(sound(loss_arrived=400, dropped_by_host=100))
    assert (subject, status) == ("receiver", Status.WARNING)
    both = bad(sound(loss_arrived=400, dropped_by_host=50))
    assert [(subject, status) for subject, status, _ in both] == [
        ("receiver", Status.WARNING),
        ("loss", Status.PROBLEM),
    ]


def test_packets_that_do_not_fit() -> None:
    assert bad(sound(payload_limit_bytes=1372, sender_limit_bytes=None)) == [
        ("path MTU", Status.PROBLEM, "1,400 bytes: payload of 1,372 arrives, 1,472 wanted")
    ]
    assert bad(sound(payload_limit_bytes=1372), payload_bytes=1372) == []
    ((_, _, seen),) = bad(sound(), payload_bytes=8972)
    assert seen == "1,500 bytes: payload of 1,472 arrives, the sender's kernel takes no more, 8,972 wanted"


def test_dead_refused_and_unexamined() -> None:
    nothing = Counter[tuple[int, int]]()
    ((subject, status, seen),) = bad(sound(received=nothing))
    assert (subject, status, seen) == ("alive", Status.PROBLEM, "none of 512 datagrams arrived")
    ((_, status, seen),) = bad(sound(received=nothing, errors=Counter({errno.EPERM: 512})))
    assert (status, seen) == (
        Status.PROBLEM,
        "the sender's own kernel refuses: Operation not permitted (512)",
    )
    ((_, status, seen),) = bad(sound(received=nothing, is_withheld=True))
    assert status is Status.WARNING
    assert "not examined" in seen


def test_oddities() -> None:
    found = bad(sound(doubled=3, misdirected=2, errors=Counter({errno.EPERM: 1})))
    assert [(subject, status) for subject, status, _ in found] == [
        ("duplicates", Status.WARNING),
        ("misdirected", Status.PROBLEM),
        ("sender", Status.WARNING),
    ]


@settings(max_examples=60)
@given(st.sets(st.integers(0, 63)))
def test_ranges_say_all_and_nothing_else(numbers: set[int]) -> None:
    said = set()
    for part in filter(None, ranges(sorted(numbers)).split(", ")):
        first, _, last = part.partition("-")
        said |= set(range(int(first), int(last or first) + 1))
    assert said == numbers


def test_the_worst_counts() -> None:
    def of(status: Status) -> Finding:
        return Finding("", status, "")

    assert worst([]) is Status.OK
    assert worst([of(Status.WARNING), of(Status.OK)]) is Status.WARNING
    assert worst([of(Status.WARNING), of(Status.PROBLEM), of(Status.OK)]) is Status.PROBLEM


@pytest.mark.parametrize(
    ("elapsed_ns", "change_ns", "is_step"),
    [
        (10**10, 0, False),
        (10**10, STEP_NS, False),
        (10**10, 5 * 10**6, False),  # 500 parts in a million: slewed
        (10**10, 10**9, True),
        (10**9, -(10**8), True),
    ],
)
def test_clock_steps(elapsed_ns: int, change_ns: int, is_step: bool) -> None:
    (finding,) = clock_findings(ClockChange(elapsed_ns, change_ns))
    assert (finding.status is Status.WARNING) == is_step


def test_a_clock_that_somebody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ClockWatch()
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3 * 10**9)
    change = watch.change()
    assert change.is_step
    assert abs(change.change_ns - 3 * 10**9) < 10**9


def test_clock_quality() -> None:
    quality = clock_quality()
    assert quality.resolution_ns > 0
    assert quality.reading_ns > 0


def test_keys(tmp_path_factory: pytest.TempPathFactory) -> None:
    identity = Job(tmp_path_factory.mktemp("job")).identity("host1")
    now = datetime.now(UTC)
    assert keys_finding(identity, now).status is Status.OK
    soon = keys_finding(identity, now + timedelta(days=28))
    assert (soon.status, "mltswitch agent keys host1 --force" in soon.remedy) == (Status.WARNING, True)
    assert keys_finding(Plaintext(), now).status is Status.OK
    assert keys_finding(Plaintext(beyond_loopback=True), now).status is Status.WARNING


RUN = Run(number=4, paths=(0, 1), traffic_bytes=(2, 138), payload_bytes=(64, 100), copies=3)


def arriving(**changes: int) -> Datagram:
    values = {"traffic_byte": 2, "path": 0, "token": 0, "run": 4, "sequence": 0, "sent_ns": 0}
    return Datagram(Kind.ONE_WAY, **(values | changes))


def test_a_tally_counts_each_once_and_only_its_own() -> None:
    tally = Tally(RUN)
    assert tally.add(arriving(), 0, 2, 64)
    assert not tally.add(arriving(), 0, 2, 64)
    assert tally.add(arriving(path=1), 0, 0, 100)
    for stranger in (
        arriving(run=3, sequence=1),
        arriving(path=2, sequence=1),
        arriving(sequence=12),
        arriving(traffic_byte=3, sequence=1),
    ):
        assert not tally.add(stranger, 0, 2, 64)
    assert not tally.add(arriving(sequence=1), 0, 2, 65)
    zero, one = tally.result({1: 7})
    assert (zero.arrived, zero.doubled, zero.misdirected, zero.dropped_by_host) == (1, 1, 0, 0)
    assert (one.arrived, one.doubled, one.misdirected, one.dropped_by_host) == (1, 0, 1, 7)
    assert one.traffic_bytes == ((2, 0, 1),)
    assert one.sizes == ((100, 1),)
    assert tally.holds({0: 1, 1: 1})
    assert not tally.holds({0: 2, 1: 1})
