"""The control plane against a real BMv2: what is written is what is read, and every refusal says why."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from mltswitch.errors import DeviceError, UserInputError
from mltswitch.p4.control import open_switch
from mltswitch.p4.program import Program, refusal_reasons, shipped_program
from mltswitch.p4.switch import BATCH_LINES, Count, PacketIn, QueueCounters, Switch
from tests.p4.switches import DEVICE_ID, RunningSwitch, running_switch

pytestmark = [pytest.mark.bmv2, pytest.mark.root]

NEIGHBOUR = "02:4d:0a:00:00:02"
OWN = "02:00:00:00:00:01"
ENTRIES = (
    f"table_add classes set_queue 1 {OWN} 10 => 5",
    f"table_add classes set_queue_and_dscp 1 {OWN} 34 => 6 0",
    "table_add groups forward 1 => 1 2",
    "table_add ipv4_routes discard 0.0.0.0/0 =>",
    "table_add ipv4_routes share_flows 10.10.0.0/16 => 1",
    "table_add ipv4_routes forward 10.101.0.0/16 => 2",
    "table_add ipv6_routes forward_back 2001:db8::/32 => 2",
    f"table_add neighbours set_neighbour 2 => {OWN} {NEIGHBOUR}",
    f"table_add ports trust 1 {OWN} =>",
    f"table_add ports distrust 2 {OWN} => 0",
    "table_add queues set_threshold_and_limit 2 5 => 3028 4542 0 1514",
    "table_add queues set_limit 2 6 => 48448 1 1514",
    "table_add queues set_limit 10 0 => 4294967295 0 1514",
)
"""In the order in which a switch's entries are listed."""
NOTHING_REFUSED = dict.fromkeys(refusal_reasons().values(), 0)
METER = "meter_set_rates policers 22 0.125:1514 0.25:3028"


def frame(*, dscp: int, ecn: int, destination: str = "10.101.0.1") -> bytes:
    packet = Ether(dst=OWN) / IP(src="10.9.9.9", dst=destination, tos=dscp << 2 | ecn) / UDP() / bytes(100)
    return bytes(packet)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "a packet sent to BMv2 was never counted"
        time.sleep(0.02)


def test_a_fresh_switch_runs_no_program(tmp_path: Path) -> None:
    with (
        running_switch(tmp_path) as running,
        open_switch(running.address, device_id=DEVICE_ID) as opened,
    ):
        assert opened.cookie() is None
        for question in (opened.entries, opened.meters, opened.counters, opened.refusals):
            with pytest.raises(DeviceError, match="runs no P4 program"):
                question()
        with pytest.raises(DeviceError, match="runs no P4 program"):
            opened.write(ENTRIES)


def test_a_loaded_program_is_known_by_its_cookie_and_has_no_entries(switch: Switch, program: Program) -> None:
    assert switch.cookie() == program.cookie
    assert switch.entries() == ()
    assert switch.meters() == ()
    assert switch.counters() == {}


def test_what_was_written_is_read_back(switch: Switch) -> None:
    switch.write((*reversed(ENTRIES), METER))
    assert switch.entries() == ENTRIES
    assert switch.meters() == (METER,)


def test_another_session_reads_the_same_beside_the_primary(switch: Switch, running: RunningSwitch) -> None:
    switch.write((*ENTRIES, METER))
    with open_switch(running.address, device_id=DEVICE_ID, primary=False) as reader:
        assert reader.entries() == ENTRIES
        assert reader.meters() == (METER,)
        assert reader.cookie() == switch.cookie()


def test_what_was_read_can_be_written_to_an_empty_switch(switch: Switch, program: Program) -> None:
    switch.write((*ENTRIES, METER))
    before = (*switch.entries(), *switch.meters())
    switch.load(program)
    assert switch.entries() == ()
    switch.write(before)
    assert (*switch.entries(), *switch.meters()) == before


def test_entries_are_changed_and_removed_by_their_key(switch: Switch) -> None:
    switch.write(ENTRIES)
    switch.write(
        (
            "table_modify_match queues set_limit 2 5 => 1500 0 1514",
            "table_delete_match ipv4_routes 0.0.0.0/0",
            "table_modify_match ipv4_routes share_packets 10.101.0.0/16 => 1",
            "table_modify_match groups forward 1 => 2 9 1",
        )
    )
    expected = set(ENTRIES) - {ENTRIES[2], ENTRIES[3], ENTRIES[5], ENTRIES[10]}
    expected |= {
        "table_add queues set_limit 2 5 => 1500 0 1514",
        "table_add ipv4_routes share_packets 10.101.0.0/16 => 1",
        "table_add groups forward 1 => 2 9 1",
    }
    assert set(switch.entries()) == expected


def test_lines_are_carried_out_in_order_across_batches(switch: Switch) -> None:
    toggles = (
        "table_add groups forward 3 => 1 2",
        "table_delete_match groups 3",
    ) * BATCH_LINES
    switch.write(toggles)
    assert switch.entries() == ()
    switch.write((*toggles, toggles[0]))
    assert switch.entries() == (toggles[0],)


def many(count: int) -> tuple[str, ...]:
    return tuple(
        f"table_add classes set_queue {number // 64 + 1} {OWN} {number % 64} => 3" for number in range(count)
    )


def test_a_refused_line_is_named_with_the_reason_and_what_took_effect(switch: Switch) -> None:
    lines = list(many(3 * BATCH_LINES))
    lines[BATCH_LINES + 7] = lines[3]
    with pytest.raises(DeviceError) as raised:
        switch.write(lines)
    applied = 2 * BATCH_LINES - 1
    assert len(switch.entries()) == applied
    said = str(raised.value)
    assert f"refuses line {BATCH_LINES + 8} of {3 * BATCH_LINES}, {lines[3]!r}" in said
    assert "Match entry exists" in said
    assert f"{applied} of {3 * BATCH_LINES} lines took effect" in said


@pytest.mark.parametrize(
    "line", ["table_modify_match groups forward 7 => 2", "table_delete_match queues 2 5"]
)
def test_what_is_not_there_is_neither_changed_nor_removed(switch: Switch, line: str) -> None:
    with pytest.raises(DeviceError, match=r"Cannot find match entry \(NOT_FOUND\); 0 of 1 lines"):
        switch.write([line])


def test_a_full_table_refuses(switch: Switch) -> None:
    """The table `ports` has room for 512 entries."""
    lines = [
        f"table_add ports trust {number % 500} 02:00:00:00:{number // 500:02x}:01 =>" for number in range(513)
    ]
    with pytest.raises(DeviceError, match=r"refuses line 513 of 513.*512 of 513 lines took effect"):
        switch.write(lines)


def test_a_wrong_line_is_found_before_anything_is_sent(switch: Switch) -> None:
    with pytest.raises(UserInputError, match="line 2: queue is '8'"):
        switch.write((ENTRIES[0], "table_add queues set_limit 2 8 => 1 0 1514"))
    assert switch.entries() == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("table_add groups forward 0 => 2 3", "group is 0"),
        ("table_add ipv4_routes share_flows 10.9.0.0/16 => 0", "group is 0"),
        ("table_add ipv6_routes share_packets 2001:db8::/32 => 0", "group is 0"),
        (
            "table_add queues set_threshold_and_limit 2 5 => 3001 3000 0 1514",
            "ecn_threshold is 3001, limit is 3000",
        ),
    ],
)
def test_what_the_program_restricts_is_not_sent(switch: Switch, line: str, said: str) -> None:
    """BMv2's server does not look at these annotations, and would take both lines."""
    with pytest.raises(UserInputError, match=said):
        switch.write((ENTRIES[0], line))
    assert switch.entries() == ()


def test_a_second_controller_is_told_who_is_primary(switch: Switch, running: RunningSwitch) -> None:
    for election_id in (1, 0):
        with (
            pytest.raises(DeviceError, match=r"another controller is primary \(election id 1\)"),
            open_switch(running.address, device_id=DEVICE_ID, election_id=election_id),
        ):
            pass
    switch.write(ENTRIES)


def test_a_higher_election_id_takes_over_and_the_former_primary_hears_of_it(
    switch: Switch, running: RunningSwitch, program: Program
) -> None:
    later = 2**64 + 5
    with open_switch(running.address, device_id=DEVICE_ID, election_id=later) as other:
        with pytest.raises(DeviceError, match="another controller is primary"):
            switch.write(ENTRIES)
        with pytest.raises(DeviceError, match="another controller is primary"):
            switch.load(program)
        other.write(ENTRIES)
    switch.write(("table_delete_match ipv4_routes 0.0.0.0/0",))


def test_a_session_that_ended_leaves_its_election_id_and_no_thread_behind(
    running: RunningSwitch, program: Program
) -> None:
    before = set(threading.enumerate())
    for _ in range(20):
        with open_switch(running.address, device_id=DEVICE_ID) as opened:
            opened.load(program)
    assert set(threading.enumerate()) <= before


def test_another_device_id_is_named_as_the_likely_cause(running: RunningSwitch, program: Program) -> None:
    with (
        open_switch(running.address, device_id=DEVICE_ID + 1) as opened,
        pytest.raises(DeviceError, match=rf"assign device.*another device id than {DEVICE_ID + 1}"),
    ):
        opened.load(program)


def test_a_switch_that_dies_is_no_bug_of_ours(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with running_switch(tmp_path) as running:
        with open_switch(running.address, device_id=DEVICE_ID) as opened:
            opened.load(shipped_program())
            running.kill()
            for question in (opened.cookie, opened.entries, lambda: opened.write(ENTRIES)):
                with pytest.raises(DeviceError, match="cannot be reached"):
                    question()
        with (
            pytest.raises(DeviceError, match="cannot be reached"),
            open_switch(running.address, device_id=DEVICE_ID),
        ):
            pass
    assert capfd.readouterr() == ("", "")


def test_queues_count_what_arrived_and_what_became_of_it(switch: Switch, running: RunningSwitch) -> None:
    switch.write(ENTRIES)
    sent = [frame(dscp=10, ecn=0), frame(dscp=10, ecn=2), frame(dscp=34, ecn=0)]
    running.send(1, *sent)
    wait_until(lambda: sum(cell.arrived.packets for cell in switch.counters().values()) == len(sent))
    size = len(sent[0])
    nothing = Count(0, 0)
    found = switch.counters()
    assert set(found) == {(2, 5), (2, 6), (10, 0)}
    both = Count(2, 2 * size)
    assert found[2, 5] == QueueCounters(both, nothing, nothing, nothing)
    assert found[2, 5].arrived == both
    assert found[2, 6].arrived == Count(1, size)
    assert found[10, 0] == QueueCounters(nothing, nothing, nothing, nothing)


def test_what_a_host_could_be_answered_for_comes_in_and_answers_go_out(
    switch: Switch, running: RunningSwitch
) -> None:
    switch.write((*ENTRIES, f"table_add queues set_limit 2 0 => 4542 0 {len(frame(dscp=10, ecn=0)) - 1}"))
    packet = Ether(frame(dscp=10, ecn=0))
    packet[IP].ttl = 1
    del packet[IP].chksum
    expired = bytes(packet)
    nowhere = frame(dscp=10, ecn=0, destination="192.0.2.1")
    too_big = frame(dscp=0, ecn=0)
    running.send(1, expired, nowhere, too_big)
    found: list[PacketIn] = []

    def have_come() -> bool:
        found.extend(switch.packets_in())
        return len(found) == 3

    wait_until(have_come)
    assert found == [PacketIn(expired, 1, 5), PacketIn(nowhere, 1, 6), PacketIn(too_big, 1, 10)]
    assert switch.packets_in() == ()
    assert switch.refusals() == NOTHING_REFUSED | {"expired": 1, "unreachable": 1, "too_big": 1}
    with running.hearing(2) as heard:
        switch.packet_out(expired, 2)
        assert heard() == expired
    for port in (-1, 255, 511):
        with pytest.raises(UserInputError, match=f"no port {port}"):
            switch.packet_out(expired, port)
    with (
        open_switch(running.address, device_id=DEVICE_ID, primary=False) as reader,
        pytest.raises(DeviceError, match="from its primary controller alone"),
    ):
        reader.packet_out(expired, 2)


def test_every_packet_that_joins_no_queue_is_counted_by_reason(
    switch: Switch, running: RunningSwitch
) -> None:
    switch.write([line for line in ENTRIES if "0.0.0.0/0" not in line])
    good = frame(dscp=10, ecn=0)
    running.send(
        1,
        frame(dscp=10, ecn=0, destination="192.0.2.1"),
        good[:12] + b"\x88\xcc" + good[14:],
        good[:22] + b"\x01" + good[23:],
        good[:20],
        good,
    )
    wait_until(lambda: sum(switch.refusals().values()) == 4)
    assert switch.refusals() == NOTHING_REFUSED | {
        "malformed": 1,
        "checksum": 1,
        "not_ip": 1,
        "no_route": 1,
    }
