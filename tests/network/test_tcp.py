"""A TCP sender, acknowledgement by acknowledgement, by the words of its RFCs."""

import numpy as np
import pytest

from mltswitch.network.ports import new_packet
from mltswitch.network.records import ACK
from mltswitch.network.transports import tcp
from mltswitch.network.transports.parameters import Dctcp, NewReno
from mltswitch.network.workloads import Flow
from mltswitch.network.world import World
from tests.network.support import MICROSECOND, network, world


class Sender:
    """A sender of a hundred packets whose answers the test makes: the line loses what it sends itself."""

    def __init__(self, transport: NewReno | Dctcp) -> None:
        net = network(loss=0.999999)
        self.world: World = world(net, [Flow(0, 7, 146_000, 0)], transport)
        self.now_microseconds = 0
        self.wait(20)

    def wait(self, microseconds: int) -> None:
        self.now_microseconds += microseconds
        self.world.advance(self.now_microseconds * MICROSECOND)

    def hear(self, upto: int, *, marked: bool = False) -> None:
        """An acknowledgement of all packets below a number, and time to send what it lets go."""
        state, flow = self.world.state, self.world.flows[0]
        state["now"] = self.now_microseconds * MICROSECOND
        index = new_packet(state[0])
        packet = self.world.tables["packets"][index]
        packet["kind"], packet["flow"], packet["number"] = ACK, 0, upto
        packet["sent"], packet["marked"] = state["now"][0] - 10 * MICROSECOND, marked
        tcp.answered(state[0], 0, flow, index)
        self.wait(20)

    def __getitem__(self, name: str) -> float:
        return float(self.world.flows[name][0])


def test_an_acknowledgement_of_many_packets_adds_one_in_slow_start() -> None:
    """RFC 5681, section 3.1, equation 2: at most SMSS bytes for each acknowledgement."""
    sender = Sender(NewReno())
    assert sender["next"] == 10
    sender.hear(8)
    assert sender["window"] == 11


def test_recovery_by_the_words_of_newreno() -> None:
    """RFC 6582, section 3.2, and RFC 6298, section 5: the timer runs on but for the first partial answer."""
    sender = Sender(NewReno())
    sender.hear(1)
    deadlines = [sender["deadline"]]
    for _ in range(3):
        sender.hear(1)
    deadlines.append(sender["deadline"])
    assert sender["slow_start_end"] == 11 / 2  # half of what is under way
    assert sender["window"] == 11 / 2 + 3
    assert sender["resent_packets"] == 1
    for upto in (3, 5, 6):
        sender.hear(upto)
        deadlines.append(sender["deadline"])
        assert sender["state"] == tcp.PARTIAL
    assert sender["resent_packets"] == 4
    assert np.diff(deadlines).astype(bool).tolist() == [False, True, False, False]
    sender.hear(12)
    assert (sender["state"], sender["window"]) == (tcp.OPEN, 11 / 2)
    assert sender["deadline"] > deadlines[-1]


def test_a_window_shrinks_once_for_all_its_marks() -> None:
    """RFC 8257, section 3.3: by half of the estimate, and slow start is over."""
    sender = Sender(Dctcp())
    sender.hear(1, marked=True)  # all of the first window, so the estimate stays 1
    assert sender["alpha"] == 1
    assert sender["window"] == sender["slow_start_end"] == 5
    for upto in range(2, 11):
        sender.hear(upto, marked=True)
    assert sender["window"] == 5
    sender.hear(11, marked=True)
    assert sender["window"] == pytest.approx(max(tcp.LEAST_WINDOW, 5 * (1 - sender["alpha"] / 2)))
