"""A probe is answered when all that arrived before it has been read, and nothing more is to come."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from mltswitch.hostagent.tagging import is_important
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.datagrams import Datagram, DatagramGrid
from mltswitch.hostagent.transport.interfaces import Direction, TransferKey
from mltswitch.hostagent.transport.messages import (
    MAXIMUM_MARKED_PATHS,
    Bitmap,
    MessageReader,
    Probe,
    encode_message,
)
from mltswitch.hostagent.transport.pacing import Pacer
from mltswitch.hostagent.transport.rate import RateSettings, Timely
from mltswitch.hostagent.transport.settings import ConnectionSettings
from mltswitch.wire import AgentHeader, AgentKind
from tests.hostagent.transport.ends import connection, incoming, outgoing, talk, tensor

BEGIN_NS = 1_000
SOON_NS = 2_000
LATER_NS = 900_000_000


class Codes:
    """Code points of a layer whose class changes between two chunks."""

    def __init__(self, *codes: int) -> None:
        self._codes: Iterator[int] = iter(codes)

    def __call__(self) -> int:
        return next(self._codes)


def pair(paths: int = 1, *, authenticate: bool = False) -> tuple[Connection, Connection]:
    """A sender and a receiver that know each other."""
    sender, receiver = (connection(number, paths=paths, authenticate=authenticate) for number in (1, 2))
    talk(sender, receiver)
    return sender, receiver


def send_all(
    sender: Connection, receiver: Connection, elements: int = 4 * 358, dscp: Callable[[], int] = lambda: 34
) -> bytes:
    """A pass of packets that are all lost; what the sender then says on the control channel."""
    receiver.receive(replace(incoming(3), tensor=tensor(elements)), BEGIN_NS)
    sender.send(outgoing(3, tensor=tensor(elements), dscp=dscp), BEGIN_NS)
    talk(sender, receiver, BEGIN_NS)
    said, now_ns = b"", BEGIN_NS
    while not said:
        if sender.bursts(now_ns, 100) is None:
            now_ns += 100_000
        said = sender.control_to_send()
    return said


def hear(receiver: Connection, datagrams: list[Datagram], now_ns: int) -> None:
    for datagram in datagrams:
        memory = np.frombuffer(datagram.payload, np.uint8)
        tos = np.array([datagram.tos], np.uint8)
        receiver.datagrams_received([DatagramGrid(memory, 0, 1, memory.size, 1, memory.size, tos)], now_ns)


def answers(receiver: Connection, now_ns: int) -> list[Bitmap]:
    receiver.timer(now_ns)
    said = MessageReader().messages(receiver.control_to_send())
    return [entry for entry in said if isinstance(entry, Bitmap)]


def test_a_backlog_in_the_socket_delays_the_answer() -> None:
    sender, receiver = pair()
    receiver.control_received(send_all(sender, receiver), BEGIN_NS)
    due_ns = receiver.next_timer_ns()
    assert due_ns is not None
    reader = MessageReader()
    receiver.timer(LATER_NS, due_ns - 1)
    assert not [entry for entry in reader.messages(receiver.control_to_send()) if isinstance(entry, Bitmap)]
    receiver.timer(LATER_NS, due_ns)
    found = [entry for entry in reader.messages(receiver.control_to_send()) if isinstance(entry, Bitmap)]
    assert len(found) == 1


@pytest.mark.parametrize("authenticate", [False, True])
@pytest.mark.parametrize("is_probe_first", [False, True])
def test_behind_all_markers_nothing_is_waited_for(is_probe_first: bool, authenticate: bool) -> None:
    sender, receiver = pair(paths=2, authenticate=authenticate)
    probe = send_all(sender, receiver)
    markers = sender.markers_to_send(BEGIN_NS)
    assert sorted(entry.path for entry in markers) == [0, 1]
    assert not sender.markers_to_send(BEGIN_NS), "they are taken"
    if is_probe_first:
        receiver.control_received(probe, SOON_NS)
        assert not answers(receiver, SOON_NS)
    hear(receiver, markers[:1], SOON_NS)
    assert not answers(receiver, SOON_NS)
    hear(receiver, markers[1:], SOON_NS)
    if not is_probe_first:
        receiver.control_received(probe, SOON_NS)
    assert len(answers(receiver, SOON_NS)) == 1
    assert not answers(receiver, LATER_NS)


def test_markers_among_many_datagrams_count_as_well() -> None:
    sender, receiver = pair(paths=2)
    receiver.control_received(send_all(sender, receiver), SOON_NS)
    markers = sender.markers_to_send(BEGIN_NS)
    memory = np.frombuffer(b"".join(entry.payload for entry in 20 * markers), np.uint8)
    size_bytes, count = len(markers[0].payload), 20 * len(markers)
    tos = np.full(count, markers[0].tos, np.uint8)
    receiver.datagrams_received([DatagramGrid(memory, 0, count, size_bytes, 1, size_bytes, tos)], SOON_NS)
    assert len(answers(receiver, SOON_NS)) == 1


def test_each_pass_marks_the_paths_that_it_took_and_no_others() -> None:
    sender, receiver = pair(paths=2)
    probe = send_all(sender, receiver)
    markers = sender.markers_to_send(BEGIN_NS)
    hear(receiver, markers, SOON_NS)
    receiver.control_received(probe, SOON_NS)
    receiver.timer(SOON_NS)
    sender.control_received(receiver.control_to_send(), SOON_NS)
    rested_ns = SOON_NS + 2_000_000
    sender.timer(rested_ns)
    took = {int(path) for bursts in iter(lambda: sender.bursts(rested_ns, 1), None) for path in bursts.paths}
    assert {entry.path for entry in sender.markers_to_send(rested_ns)} == took
    (again,) = [
        entry for entry in MessageReader().messages(sender.control_to_send()) if isinstance(entry, Probe)
    ]
    assert set(again.marked_paths) == took


@pytest.mark.parametrize("ahead", [2, 7])
def test_a_marker_far_ahead_disarms_nothing(ahead: int) -> None:
    sender, receiver = pair()
    probe = send_all(sender, receiver)
    (marker,) = sender.markers_to_send(BEGIN_NS)
    forged = AgentHeader.decode(marker.payload)._replace(sequence=ahead).encode()
    hear(receiver, [Datagram(forged, 0, marker.tos)], SOON_NS)
    receiver.control_received(probe, SOON_NS)
    assert not answers(receiver, SOON_NS)


def test_a_transfer_that_ends_takes_its_markers_along() -> None:
    sender, receiver = pair()
    send_all(sender, receiver)
    sender.cancel(TransferKey(3, 1), Direction.SEND, "no more", SOON_NS)
    assert not sender.markers_to_send(SOON_NS)


def test_what_the_kernel_keeps_for_later_has_no_markers() -> None:
    sender, receiver = pair()
    sender.pace(Pacer(0))
    said = send_all(sender, receiver)
    (probe,) = [entry for entry in MessageReader().messages(said) if isinstance(entry, Probe)]
    assert probe.marked_paths == ()
    assert not sender.markers_to_send(BEGIN_NS)


def test_without_a_marker_the_answer_comes_all_the_same() -> None:
    sender, receiver = pair(paths=2)
    receiver.control_received(send_all(sender, receiver), SOON_NS)
    hear(receiver, sender.markers_to_send(BEGIN_NS)[:1], SOON_NS)
    assert not answers(receiver, SOON_NS)
    assert len(answers(receiver, LATER_NS)) == 1


def test_the_marker_of_the_pass_before_is_none_of_this_one() -> None:
    sender, receiver = pair()
    receiver.control_received(send_all(sender, receiver), SOON_NS)
    old = sender.markers_to_send(BEGIN_NS)
    hear(receiver, old, SOON_NS)
    receiver.timer(SOON_NS)
    sender.control_received(receiver.control_to_send(), SOON_NS)
    rested_ns = SOON_NS + 2_000_000  # nothing had arrived
    sender.timer(rested_ns)
    while sender.bursts(rested_ns, 100) is not None:
        pass
    receiver.control_received(sender.control_to_send(), rested_ns)
    hear(receiver, old, rested_ns)
    assert not answers(receiver, rested_ns)
    hear(receiver, sender.markers_to_send(rested_ns), rested_ns)
    assert [entry.attempt for entry in answers(receiver, rested_ns)] == [2]


def test_a_marker_goes_behind_the_data_and_is_as_important_as_any() -> None:
    sender, receiver = pair()
    send_all(sender, receiver)
    assert sender.sprayer is not None
    under_way_bytes = sender.sprayer.in_flight_bytes
    (marker,) = sender.markers_to_send(7_000_000)
    assert sender.sprayer.in_flight_bytes == under_way_bytes + len(marker.payload)
    header = AgentHeader.decode(marker.payload)
    assert (header.kind, header.tensor, header.round, header.sequence) == (AgentKind.PROBE, 3, 1, 1)
    assert header.sent_nanoseconds == 7_000_000
    assert marker.tos >> 2 == 34
    assert is_important(marker.tos)


def test_a_marker_is_answered_as_a_path_probe_is() -> None:
    sender, receiver = pair()
    send_all(sender, receiver)
    hear(receiver, sender.markers_to_send(BEGIN_NS), SOON_NS)
    (answer,) = receiver.datagrams_to_send(SOON_NS)
    assert AgentHeader.decode(answer.payload).kind == AgentKind.ACKNOWLEDGEMENT
    assert sender.sprayer is not None
    assert sender.sprayer.in_flight_bytes > 0
    hear(sender, [answer], SOON_NS)
    assert sender.sprayer.in_flight_bytes == 0


@pytest.mark.parametrize("leaves_later", [False, True])
def test_what_is_missing_leaves_at_once(leaves_later: bool) -> None:
    slow = Timely(RateSettings.for_network(1e6, queue_bytes=0))  # a packet in 12 ms
    sender, receiver = connection(1, rate=slow), connection(2)
    talk(sender, receiver)
    if leaves_later:
        sender.pace(Pacer(0))
    receiver.receive(replace(incoming(3), tensor=tensor(40 * 358)), BEGIN_NS)
    sender.send(outgoing(3, tensor=tensor(40 * 358)), BEGIN_NS)
    talk(sender, receiver, BEGIN_NS)
    first = sender.bursts(BEGIN_NS, 100)
    assert first is not None
    assert first.packet_count == 40
    hear(receiver, [Datagram(first.datagram(0), 0, int(first.tos[0]))], SOON_NS)
    receiver.control_received(sender.control_to_send(), SOON_NS)
    receiver.timer(LATER_NS)
    answered_ns = BEGIN_NS + 10_000_000
    sender.control_received(receiver.control_to_send(), answered_ns)
    again = sender.bursts(answered_ns, 100)
    assert again is not None
    if leaves_later:
        assert again.packet_count < 10, "the kernel has enough"
    else:
        assert again.packet_count == 39


def test_data_of_several_classes_has_no_markers() -> None:
    chunks = ConnectionSettings(chunk_packets=4, least_chunk_packets=4)
    sender, receiver = connection(1, chunks), connection(2)
    talk(sender, receiver)
    said = send_all(sender, receiver, 2 * 4 * 358, Codes(34, 26))
    (probe,) = [entry for entry in MessageReader().messages(said) if isinstance(entry, Probe)]
    assert probe.marked_paths == ()
    assert not sender.markers_to_send(BEGIN_NS)
    receiver.control_received(said, SOON_NS)
    assert not answers(receiver, SOON_NS), "nobody knows whether more is to come"
    assert len(answers(receiver, LATER_NS)) == 1


def test_more_paths_than_a_probe_names_have_no_markers() -> None:
    sender, receiver = pair(paths=MAXIMUM_MARKED_PATHS + 1)
    said = send_all(sender, receiver, 4 * (MAXIMUM_MARKED_PATHS + 1) * 358)
    (probe,) = [entry for entry in MessageReader().messages(said) if isinstance(entry, Probe)]
    assert probe.marked_paths == ()
    assert not sender.markers_to_send(BEGIN_NS)


@pytest.mark.parametrize(("packets", "is_marked"), [(2_000, True), (4_000, False)])
def test_a_long_pass_that_meets_no_queue_needs_no_markers(packets: int, is_marked: bool) -> None:
    rate = Timely(RateSettings.for_network(10e9, queue_bytes=0))
    for now_ns in range(0, 10**7, 10**6):
        rate.acknowledged(1, now_ns)
    assert rate.is_highest
    sender, receiver = connection(1, rate=rate), connection(2, window_bytes=1 << 30)
    talk(sender, receiver)
    said = send_all(sender, receiver, packets * 358)
    (probe,) = [entry for entry in MessageReader().messages(said) if isinstance(entry, Probe)]
    assert bool(probe.marked_paths) == bool(sender.markers_to_send(BEGIN_NS)) == is_marked


def test_a_marker_of_a_path_that_is_not_there_changes_nothing() -> None:
    sender, receiver = pair()
    receiver.control_received(send_all(sender, receiver), SOON_NS)
    (marker,) = sender.markers_to_send(BEGIN_NS)
    foreign = AgentHeader.decode(marker.payload)
    payload = foreign._replace(path=9).encode()
    hear(receiver, [Datagram(payload, 0, marker.tos)], SOON_NS)
    assert not answers(receiver, SOON_NS)


def test_a_probe_that_names_a_path_that_is_not_there_is_a_violation() -> None:
    sender, receiver = pair()
    send_all(sender, receiver)
    receiver.control_received(encode_message(Probe(TransferKey(3, 1), 1, 0, (1,))), SOON_NS)
    assert receiver.is_over
