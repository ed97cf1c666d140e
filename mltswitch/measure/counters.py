"""Asks devices for the counters of their queues; no other module does."""

from collections.abc import Callable, Sequence

from mltswitch.deploy.prepare import Job
from mltswitch.deploy.session import Session
from mltswitch.errors import DeviceError
from mltswitch.targets import Target
from mltswitch.targets.base import QueueCounters, QueuePlace


def read_counters(session: Session, job: Job) -> QueueCounters:
    """The counters of a device's planned ports; raises DeviceError."""
    if not tells_traffic(job.target):
        raise DeviceError(silence(job.target), where=job.device.name)
    ports = job.fitted.state.ports
    return ask_counters(
        job.target, session.ask, [(port.name, each.queue) for port in ports for each in port.queues]
    )


def ask_counters(target: Target, ask: Callable[[str], str], places: Sequence[QueuePlace]) -> QueueCounters:
    """The counters of these queues, read by `ask`; raises DeviceError."""
    if target.counters is None:
        raise DeviceError(target.no_counters or silence(target))
    queries = target.counters.queries(dict.fromkeys(port for port, _ in places))
    return target.counters.read({each: ask(each) for each in queries}, places)


def tells_traffic(target: Target) -> bool:
    """Whether devices of this target tell how many packets came to each queue."""
    return target.counters is not None and target.counters.tells_traffic


def silence(target: Target) -> str:
    """The sentence that says why this target's counters are not read."""
    return f"platform {target.platform} does not tell counters of its queues in a form that we know"
