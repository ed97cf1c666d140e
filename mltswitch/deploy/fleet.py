"""Doing one thing on many devices at once, with nornir; one device's failure stops no other."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from mltswitch.deploy.comparison import report
from mltswitch.deploy.prepare import Job
from mltswitch.deploy.results import DeviceReport, Status
from mltswitch.deploy.session import explained
from mltswitch.errors import UserInputError

DEFAULT_CONCURRENCY: Final = 20
MAXIMUM_CONCURRENCY: Final = 256
"""Connections at once; each costs a thread, and the jump host's files are not without limit."""

_TICK_SECONDS: Final = 0.05

Work = Callable[[Job], DeviceReport]
Progress = Callable[[DeviceReport], None]


def run_fleet(
    jobs: Sequence[Job], work: Work, concurrency: int, progress: Progress | None
) -> tuple[DeviceReport, ...]:
    """A report per job, in order; `progress` hears of each as it ends, one at a time.

    An interrupt lets devices finish that are being worked on, and starts no other.
    """
    from nornir.core import Nornir
    from nornir.core.inventory import Host, Hosts, Inventory
    from nornir.core.task import Result, Task
    from nornir.plugins.runners import ThreadedRunner

    if not 1 <= concurrency <= MAXIMUM_CONCURRENCY:
        raise UserInputError(f"{concurrency} devices at once", expected=f"1 to {MAXIMUM_CONCURRENCY}")
    # nornir prints what its inventory holds; so it gets names only, and credentials stay in our devices.
    hosts = Hosts({job.device.name: Host(job.device.name) for job in jobs})
    by_name = {job.device.name: job for job in jobs}
    reports: dict[str, DeviceReport] = {}
    interrupted = threading.Event()
    busy: set[str] = set()
    reporting = threading.Lock()

    def task(task: Task) -> Result:
        name = task.host.name
        busy.add(name)  # before the look at `interrupted`, which is set before the look at `busy`
        try:
            if interrupted.is_set():
                return Result(host=task.host)
            report = reports[name] = _guarded(work, by_name[name])
        finally:
            busy.discard(name)
        if progress is not None:
            with reporting:
                progress(report)
        return Result(host=task.host)

    fleet = Nornir(inventory=Inventory(hosts), runner=ThreadedRunner(num_workers=concurrency))
    try:
        fleet.run(task)
    except KeyboardInterrupt:
        interrupted.set()
        while busy:  # whoever holds the devices' lock must not leave while one of them is worked on
            time.sleep(_TICK_SECONDS)
        raise
    return tuple(reports[job.device.name] for job in jobs)


def _guarded(work: Work, job: Job) -> DeviceReport:
    started = time.monotonic()
    try:
        return work(job)
    except Exception as error:  # noqa: BLE001 (a bug of ours concerns this device alone)
        return replace(report(job, Status.FAILED, started), error=explained(job.device, error))
