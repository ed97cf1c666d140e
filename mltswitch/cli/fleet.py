"""Progress of work on many devices, and the printed report when it is done."""

import signal
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Self

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from mltswitch.capabilities import Unverified
from mltswitch.cli.output import Answer, last_words, progress, stderr_console
from mltswitch.cli.switches import roundings_table, unsupported_lines
from mltswitch.cli.verbose import shortened
from mltswitch.deploy import DeviceDifference, DeviceReport, Fleet, FleetReport, Status

INTERRUPTED: Final = 130
"""Exit code of a command that Ctrl-C ended."""
SHOWN_PORTS: Final = 3
"""How many ports are named of those that differ alike; the others are counted."""


class Bar:
    """A progress bar on standard error; nothing where that is no terminal.

    Where it `finishes`, the first Ctrl-C lets the devices finish that were begun, and the command report.
    """

    def __init__(
        self,
        title: str,
        total: int,
        concurrency: int,
        device_seconds: float | None = None,
        deadline: float | None = None,
        *,
        finishes: bool = False,
    ) -> None:
        self.fleet = Fleet(
            concurrency=concurrency, progress=self._done, device_seconds=device_seconds, deadline=deadline
        )
        columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._progress = Progress(*columns, console=stderr_console(), transient=True)
        self._task = self._progress.add_task("", total=total)
        # A shell starts what runs in the background with interrupts ignored.
        self._finishes = finishes and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def __enter__(self) -> Self:
        if self._finishes:
            signal.signal(signal.SIGINT, self._interrupt)
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        if self._finishes:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C has kept work on some devices from starting."""
        return self.fleet.interrupted.is_set()

    def _interrupt(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.fleet.interrupted.set()
        last_words("interrupted: the devices that were begun are finished, and no other is begun")

    def _done(self, report: DeviceReport) -> None:
        text = f"{_wave(report)}{report.device}: {report.status}"
        self._progress.update(self._task, advance=1, description=text)


def _wave(report: DeviceReport) -> str:
    return f"wave {report.wave}: " if report.wave else ""


def report_answer(
    report: FleetReport,
    *,
    with_changes: bool = False,
    untested: Mapping[str, tuple[Unverified, ...]] | None = None,
    is_interrupted: bool = False,
    last: Iterable[str] = (),
) -> Answer:
    """The report of each device with the exit code, as an answer; its text ends with the `last` lines."""
    document = {
        "summary": {status.value: len(report.with_status(status)) for status in Status},
        "warnings": report.warnings,
        "unverified": untested or {},
        "change": report.change,
        "devices": report.devices,
    }
    code = INTERRUPTED if is_interrupted else report.exit_code
    return Answer(document, _text(report, with_changes=with_changes, last=last), code)


def _text(report: FleetReport, *, with_changes: bool, last: Iterable[str]) -> Iterator[RenderableType]:
    for warning in report.warnings:
        progress(f"warning: {warning}")
    yield from unsupported_lines({device.device: device.shortfalls for device in report.devices})
    for device in report.devices:
        kind = f"{device.platform}, {device.hardware}" if device.hardware else device.platform
        yield f"{_wave(device)}{device.device} ({kind}): {device.status}, {device.seconds:.1f} s"
        if device.error:
            yield f"  {device.error}"
        for note in device.notes:
            yield f"  note: {note}"
        if device.way_back:
            yield f"  way back: {device.way_back}"
        if with_changes or device.status in (Status.DIFFERS, Status.FAILED):
            lines = list(_grouped(device.differences))
            yield from (
                f"  {each}" for each in (shortened(lines) if device.status is Status.FAILED else lines)
            )
        if with_changes:
            yield from (f"    {line}" for line in device.change.splitlines())
    if with_changes:
        told = [device for device in report.devices if not device.error]
        if any(device.roundings or not device.shortfalls for device in told):
            yield roundings_table(
                {each.device: (each.platform, each.hardware, each.roundings) for each in told}
            )
    counts = {status: len(report.with_status(status)) for status in Status}
    yield ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing to do"
    if report.change and report.with_status(Status.CHANGED):
        yield f"change {report.change}; `mltswitch rollback {report.change}` takes it back"
    yield from last


def _grouped(differences: Iterable[DeviceDifference]) -> Iterator[str]:
    """What runs → the plan, a line for all ports of a device that differ alike."""
    ports: dict[tuple[str, str, str], list[str]] = {}
    for found in differences:
        ports.setdefault((found.device, found.queue_name, found.change), []).append(found.port)
    for (device, queue, change), names in ports.items():
        more = f" and {len(names) - SHOWN_PORTS} more ports" if len(names) > SHOWN_PORTS else ""
        place = f"{device} {', '.join(names[:SHOWN_PORTS])}{more}".rstrip()
        yield f"{place}, {queue}: {change}" if queue else f"{place}: {change}"
