"""Which rules a class has."""

from mltswitch.queueing.completion.admission import Admission, ClassQueue
from mltswitch.queueing.completion.by_burst import BurstAdmission
from mltswitch.queueing.completion.by_packet import PacketAdmission


def admission_of(queue: ClassQueue) -> Admission:
    """How the packets of a class join its queue."""
    kind = BurstAdmission if queue.is_burst_alike and queue.sizes != (1,) else PacketAdmission
    return kind(queue.threshold, queue.limit, queue.important_share, queue.sizes, queue.probabilities)
