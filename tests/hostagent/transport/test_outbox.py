"""How much leaves at once."""

from dataclasses import replace

from mltswitch.hostagent.transport.pacing import CALM_SLACK_NS, SLACK_NS
from mltswitch.hostagent.transport.rate import RateSettings, Timely
from tests.hostagent.transport.ends import connection, incoming, outgoing, talk, tensor

RATE_BPS = 4e9
"""Moves half a megabyte in 1.1 ms: the test's connections have a window of one."""
PACKET_BYTES = 1_500 + 14
PACKETS = 3_000


def left_at_once(rate: Timely) -> int:
    """Packets of the first burst of bursts, after a second without any."""
    sender, receiver = connection(1, rate=rate), connection(2)
    elements = tensor(PACKETS * 1_432 // 4)
    sender.send(outgoing(5, tensor=elements), 1)
    receiver.receive(replace(incoming(5), tensor=elements), 1)
    talk(sender, receiver)
    bursts = sender.bursts(10**9, 10 * PACKETS)
    assert bursts is not None
    return bursts.packet_count


def test_more_leaves_at_once_while_nothing_slows_the_flow_down() -> None:
    rate = Timely(RateSettings.for_network(RATE_BPS, queue_bytes=0))
    calm = left_at_once(rate)
    slower = Timely(replace(rate.settings, learns_base=False))
    while slower.is_highest:
        slower.acknowledged(10 * rate.settings.high_ns, 10**9)
        slower.acknowledged(10 * rate.settings.high_ns, 10**9 + 10**8)
    hindered = left_at_once(slower)
    assert calm * PACKET_BYTES <= CALM_SLACK_NS * RATE_BPS / 8e9
    assert calm * PACKET_BYTES > 0.9 * CALM_SLACK_NS * RATE_BPS / 8e9
    assert hindered * PACKET_BYTES <= max(SLACK_NS * slower.rate_bps / 8e9, 65_536)
    assert hindered < calm / 3
