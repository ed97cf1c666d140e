"""A lone segment of TCP that is lost is noticed late: another message follows those that matter."""

from mltswitch.hostagent.transport.messages import Message, MessageReader, Ping, Ready
from mltswitch.hostagent.transport.settings import ConnectionSettings
from tests.hostagent.transport.ends import connection, incoming, talk

NUDGE_NS = ConnectionSettings().nudge_ns
BEGIN_NS = 1_000_000_001


def said(data: bytes) -> list[Message]:
    return list(MessageReader().messages(data))


def test_a_ping_follows_until_one_is_answered() -> None:
    one, other = connection(1), connection(2)
    talk(one, other)
    one.timer(BEGIN_NS)
    one.control_to_send()
    one.receive(incoming(3), BEGIN_NS)
    (ready,) = said(one.control_to_send())
    assert isinstance(ready, Ready)
    now_ns, gaps = BEGIN_NS, []
    for _ in range(5):
        due_ns = one.next_timer_ns()
        assert due_ns is not None
        gaps.append(due_ns - now_ns)
        now_ns = due_ns
        one.timer(now_ns)
        (ping,) = said(one.control_to_send())
        assert isinstance(ping, Ping)
    assert gaps == [NUDGE_NS, NUDGE_NS, 2 * NUDGE_NS, 4 * NUDGE_NS, 8 * NUDGE_NS]
    due_ns = one.next_timer_ns()
    assert due_ns is not None
    assert due_ns - now_ns > 100 * NUDGE_NS


def test_what_the_kernel_of_the_peer_has_needs_no_other_word() -> None:
    one, other = connection(1), connection(2)
    talk(one, other)
    one.timer(BEGIN_NS)
    talk(one, other, BEGIN_NS)
    assert not one.is_waiting_to_be_heard
    one.receive(incoming(3), BEGIN_NS)
    assert not one.is_waiting_to_be_heard  # it has not been sent yet
    one.control_to_send()
    assert one.is_waiting_to_be_heard
    one.control_arrived(BEGIN_NS + 1)
    assert not one.is_waiting_to_be_heard
    due_ns = one.next_timer_ns()
    assert due_ns is not None
    assert due_ns > BEGIN_NS + 100 * NUDGE_NS


def test_an_answer_ends_it() -> None:
    one, other = connection(1), connection(2)
    talk(one, other)
    one.timer(BEGIN_NS)
    talk(one, other, BEGIN_NS)
    one.receive(incoming(3), BEGIN_NS)
    talk(one, other, BEGIN_NS)
    one.timer(BEGIN_NS + NUDGE_NS)
    talk(one, other, BEGIN_NS + NUDGE_NS + 1)
    due_ns = one.next_timer_ns()
    assert due_ns is not None
    assert due_ns > BEGIN_NS + 100 * NUDGE_NS
