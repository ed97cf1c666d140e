"""A probe is answered when all that arrived before it has been read, and not earlier."""

from mltswitch.hostagent.transport.messages import Bitmap, MessageReader
from tests.hostagent.transport.ends import connection, incoming, outgoing, talk

BEGIN_NS = 1_000
LATER_NS = 900_000_000


def test_a_backlog_in_the_socket_delays_the_answer() -> None:
    sender, receiver = connection(1), connection(2)
    talk(sender, receiver)
    receiver.receive(incoming(3), BEGIN_NS)
    sender.send(outgoing(3), BEGIN_NS)
    talk(sender, receiver, BEGIN_NS)
    assert sender.bursts(BEGIN_NS, 100) is not None
    receiver.control_received(sender.control_to_send(), BEGIN_NS)
    due_ns = receiver.next_timer_ns()
    assert due_ns is not None
    reader = MessageReader()
    receiver.timer(LATER_NS, due_ns - 1)
    assert not [entry for entry in reader.messages(receiver.control_to_send()) if isinstance(entry, Bitmap)]
    receiver.timer(LATER_NS, due_ns)
    answers = [entry for entry in reader.messages(receiver.control_to_send()) if isinstance(entry, Bitmap)]
    assert len(answers) == 1
