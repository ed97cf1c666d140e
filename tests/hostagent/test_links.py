"""What the kernel has not taken yet when a tensor is its owner's again."""

from typing import cast

from mltswitch.hostagent.control.channel import ControlChannel
from mltswitch.hostagent.links import Link
from mltswitch.hostagent.transport.interfaces import TransferKey
from tests.hostagent.transport.ends import connection, incoming, outgoing, talk


def test_nothing_of_a_tensor_leaves_after_its_end() -> None:
    sender, receiver = connection(1), connection(2)
    sender.send(outgoing(5, 3), 1)
    receiver.receive(incoming(5, 3), 1)
    talk(sender, receiver)
    link = Link(cast("ControlChannel", None), "host2", sender)
    link.rest = sender.bursts(1, 10)
    assert link.rest is not None
    for other in (TransferKey(5, 2), TransferKey(4, 3)):
        link.forget(other)
        assert link.is_blocked
    link.forget(TransferKey(5, 3))
    assert not link.is_blocked
