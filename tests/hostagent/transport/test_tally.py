"""Counts by class and by path are those of a packet-by-packet count."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.tagging import tos
from mltswitch.hostagent.transport.datagrams import HEADER_DTYPE, Bursts
from mltswitch.hostagent.transport.tally import ReceivedTotals, ReceiveTally, SendTally, SentTotals

PACKETS = 40


def bursts(lengths: list[int], paths: list[int], important: list[bool]) -> Bursts:
    count = sum(lengths)
    return Bursts(
        np.zeros(count, HEADER_DTYPE),
        np.zeros(0, np.uint8),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
        np.cumsum([0, *lengths]),
        np.array(paths, np.int64),
        np.array([tos(34, important=kind) for kind in important], np.uint8),
    )


@given(st.data())
def test_what_is_sent(data: st.DataObject) -> None:
    tally, expected_sent, expected_lost = (
        SendTally(),
        Counter[tuple[int, bool]](),
        Counter[tuple[int, bool]](),
    )
    by_path, resent = Counter[int](), 0
    important = np.array(data.draw(st.lists(st.booleans(), min_size=PACKETS, max_size=PACKETS)))
    tally.begin(PACKETS)
    sequences = np.arange(PACKETS)
    dscps = np.zeros(PACKETS, np.int64)
    for attempt in range(data.draw(st.integers(1, 3))):
        for part in np.array_split(sequences, data.draw(st.integers(1, 4))):
            dscp = data.draw(st.sampled_from([0, 10, 34, 63]))
            tally.chunk(part, dscp, is_repeated=attempt > 0)
            dscps[part] = dscp
            for packet in part.tolist():
                expected_sent[dscp, bool(important[packet])] += 1
            resent += len(part) if attempt else 0
            left = [[kind] * int(np.count_nonzero(important[part] == kind)) for kind in (False, True)]
            while any(left):
                kinds = [kind for kind in left if kind]
                lengths = [data.draw(st.integers(1, len(kind))) for kind in kinds]
                paths = [data.draw(st.integers(0, 5)) for _ in kinds]
                tally.left(bursts(lengths, paths, [kind[0] for kind in kinds]))
                for kind, length, path in zip(kinds, lengths, paths, strict=True):
                    by_path[path] += length
                    del kind[:length]
        kept = data.draw(st.lists(st.booleans(), min_size=len(sequences), max_size=len(sequences)))
        sequences = sequences[np.array(kept, np.bool_)]
        tally.answered(sequences, important)
        for packet in sequences.tolist():
            expected_lost[int(dscps[packet]), bool(important[packet])] += 1
    totals = tally.totals()
    assert totals == SentTotals(
        expected_sent.total(),
        sum(count for (_, is_important), count in expected_sent.items() if is_important),
        resent,
        expected_lost.total(),
        sum(count for (_, is_important), count in expected_lost.items() if is_important),
    )
    assert tally.by_path == tuple(by_path[path] for path in range(len(tally.by_path)))
    assert sum(tally.by_path) == totals.packets
    for entry in tally.classes():
        sent = [expected_sent[entry.dscp, is_important] for is_important in (False, True)]
        lost = [expected_lost[entry.dscp, is_important] for is_important in (False, True)]
        assert (entry.packets_sent, entry.important_sent) == (sum(sent), sent[1])
        assert (entry.packets_lost, entry.important_lost) == (sum(lost), lost[1])
        assert entry.packets_received is None


@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, (1 << 16) - 1) | st.integers(0, 4)), min_size=1)
)
def test_what_arrives(packets: list[tuple[int, int]]) -> None:
    tally = ReceiveTally(paths=3)
    tos, paths = np.array(packets).T
    tally.arrived(tos.astype(np.uint8), paths.astype(np.uint32))
    assert tally.by_path == tuple(sum(path == number for _, path in packets) for number in range(3))
    assert tally.packets_marked == sum(byte & 3 == 3 for byte, _ in packets)
    assert {entry.dscp: (entry.packets_received, entry.packets_marked) for entry in tally.classes()} == {
        dscp: (
            sum(byte >> 2 == dscp for byte, _ in packets),
            sum(byte == dscp << 2 | 3 for byte, _ in packets),
        )
        for dscp in {byte >> 2 for byte, _ in packets}
    }


def test_before_any_answer_nothing_is_known_of_losses() -> None:
    tally = SendTally()
    tally.begin(3)
    tally.chunk(np.arange(3), 10, is_repeated=False)
    tally.left(bursts([3], [0], [True]))
    assert not tally.was_answered
    assert [(entry.packets_lost, entry.important_lost) for entry in tally.classes()] == [(None, None)]


def test_totals_add_up() -> None:
    sent, received = SentTotals(1, 2, 3, 4, 5), ReceivedTotals(1, 2, 3, 4, 5)
    sent.add(SentTotals(10, 20, 30, 40, 50))
    received.add(ReceivedTotals(10, 20, 30, 40, 50))
    assert sent == SentTotals(11, 22, 33, 44, 55)
    assert received == ReceivedTotals(11, 22, 33, 44, 55)
