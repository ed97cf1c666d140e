"""What switches answer to the questions of our readers, redacted, as a document that tests read again."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from mltswitch.deploy.comparison import reached, report
from mltswitch.deploy.fleet import Fleet
from mltswitch.deploy.identity import label
from mltswitch.deploy.prepare import Job, prepare
from mltswitch.deploy.redaction import Redactor, is_number_or_port, known_words, words_of
from mltswitch.deploy.results import DeviceReport, FleetReport, Status
from mltswitch.documents import StrictDocument
from mltswitch.errors import DeviceError, MltswitchError
from mltswitch.inventory import Inventory
from mltswitch.plan import Plan
from mltswitch.targets import Identity, RunningState, SwitchState, Target, target_for
from mltswitch.version import __version__

CAPTURE_SCHEMA: Final = "mltswitch/capture/v1"
ABOUT: Final = "From a switch, redacted: names, addresses, serial numbers and secrets are not the site's."
DEVICE_SECONDS: Final = 300.0
"""Longest time that one device is asked."""
MAXIMUM_CHARACTERS: Final = 8 * 2**20
"""Of all answers of one device: the document has to be one that is read again."""
_ALONE: Final = Fleet(device_seconds=DEVICE_SECONDS)


def _joined(lines: object) -> object:
    """The text of a document's lines; what is neither a list nor ASCII, pydantic refuses or takes itself."""
    if not isinstance(lines, list | tuple) or not all(
        isinstance(each, str) and each.isascii() for each in lines
    ):
        return lines
    return "\n".join(line.encode("ascii").decode("unicode_escape") for line in lines)


def _split(text: str) -> list[str]:
    return [line.encode("unicode_escape").decode("ascii") for line in text.split("\n")]


Text = Annotated[str, BeforeValidator(_joined), PlainSerializer(_split)]
"""Text with its line ends; in a document the list of its lines, with a tab as `\\t`, a backslash as two."""


class DeviceCapture(StrictDocument):
    """One switch: what it was asked, what it answered, and what it was to run."""

    platform: str
    hardware: str
    model: str = ""
    """In the vendor's words."""
    release: str = ""
    """Version of the operating system that the device reports."""
    wanted: dict[str, Text]
    """File → text: what the plan wants of the switch, in its own language; the questions depend on it."""
    answers: dict[str, Text]
    """Question → answer, all that the reader of this OS needs."""
    identity: dict[str, Text] = Field(default_factory=dict)
    """Question → answer, of those that tell who the switch is."""

    @property
    def target(self) -> Target:
        """Of its switch OS; raises UserInputError for one that is not known."""
        return target_for(self.platform, where="platform")

    def wanted_state(self) -> SwitchState:
        """What the plan wants; raises UserInputError."""
        return self.target.parse(self.wanted, self.target.hardware(self.hardware))

    def read(self) -> RunningState:
        """What the reader makes of the answers; raises DeviceError where it cannot read them."""
        return self.target.read(self.answers, self.wanted_state(), self.target.hardware(self.hardware))

    def who(self) -> Identity | None:
        """What the switch says who it is; None where its OS has no words for it."""
        return None if self.target.identify is None else self.target.identify(self.identity)


class Capture(StrictDocument):
    """A capture of one or more switches."""

    schema_version: Literal["mltswitch/capture/v1"] = Field(default=CAPTURE_SCHEMA, alias="schema")
    about: str
    """What the capture is of, in a sentence for readers."""
    tool: str
    """Version of mltswitch that asked."""
    devices: tuple[DeviceCapture, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of asking several devices."""

    report: FleetReport
    """`failed` where a device did not answer; a note where its answers cannot be read."""
    capture: Capture | None
    """None where no device answered."""


@dataclass(frozen=True, slots=True)
class _Answers:
    job: Job
    identity: Mapping[str, str]
    answers: Mapping[str, str]

    @property
    def who(self) -> Identity:
        """Empty where the OS has no words for it, or none that we read."""
        identify = self.job.target.identify
        try:
            return identify(self.identity) if identify is not None else Identity()
        except DeviceError:
            return Identity()


def capture(
    plan: Plan, inventory: Inventory, *, limit: str | None = None, about: str = ABOUT, fleet: Fleet = _ALONE
) -> Asked:
    """Ask the devices what a push of the plan would ask, and redact the answers; sends nothing else.

    Raises what `prepare` raises; a device's failure is reported.
    """
    jobs, warnings = prepare(plan, inventory, limit)
    found: dict[str, _Answers] = {}

    def work(job: Job) -> DeviceReport:
        started = time.monotonic()
        with reached(fleet.session, job) as session:
            identity = session.ask_all(job.target.identity_queries) if job.target.identity_queries else {}
            answers = session.ask_all(job.target.queries(job.fitted.state))
        size = sum(map(len, (*identity.values(), *answers.values())))
        if size > MAXIMUM_CHARACTERS:
            raise DeviceError(f"answers with {size} characters", expected=f"at most {MAXIMUM_CHARACTERS}")
        found[job.device.name] = _Answers(job, identity, answers)
        return report(job, Status.OK, started)

    reports = fleet.run(jobs, work)
    answered = [found[job.device.name] for job in jobs if job.device.name in found]
    devices = tuple(_redacted(answered, _names(plan, inventory)))
    notes = {
        each.job.device.name: tuple(_notes(each, device))
        for each, device in zip(answered, devices, strict=True)
    }
    noted = tuple(_with_notes(each, notes.get(each.device, ())) for each in reports)
    made = Capture(about=about, tool=__version__, devices=devices) if devices else None
    return Asked(FleetReport(noted, warnings), made)


def _names(plan: Plan, inventory: Inventory) -> Iterator[str]:
    """The names that fabric and inventory give to switches, hosts and their addresses."""
    yield from (switch.name for switch in plan.topology.switches)
    yield from (host.name for host in plan.topology.hosts)
    for device in inventory.devices:
        yield from (device.name, device.switch, device.hostname, label(device.hostname), device.address)
        yield from (jump.address for jump in device.jump_hosts)


def _redacted(answered: list[_Answers], names: Iterable[str]) -> Iterator[DeviceCapture]:
    redactor = Redactor()
    redactor.force(name for name in names if not is_number_or_port(name))
    for each in answered:
        redactor.force((each.who.serial, each.who.hostname, label(each.who.hostname)))
    rendered = [_rendered(each.job) for each in answered]
    texts = [
        text
        for each, files in zip(answered, rendered, strict=True)
        for text in (*files.values(), *each.answers.values(), *each.identity.values())
    ]
    redactor.reserve(texts)
    for each, files in zip(answered, rendered, strict=True):
        who, target = each.who, each.job.target
        questions = (*each.identity, *each.answers)
        known = known_words(target.platform) | words_of(questions)

        def renamed(
            texts: Mapping[str, str],
            known: frozenset[str] = known,
            kept: tuple[str, ...] = tuple(filter(None, (who.model, who.release))),
        ) -> dict[str, str]:
            return {
                redactor.redacted(name, known): redactor.redacted(text, known, kept)
                for name, text in texts.items()
            }

        yield DeviceCapture(
            platform=target.platform,
            hardware=each.job.fitted.capabilities.hardware,
            model=who.model,
            release=who.release,
            wanted={name: redactor.redacted(text, known) for name, text in files.items()},
            answers=renamed(each.answers),
            identity=renamed(each.identity),
        )


def _rendered(job: Job) -> dict[str, str]:
    return job.target.render(job.fitted.state, job.fitted.capabilities)


def _notes(asked: _Answers, device: DeviceCapture) -> Iterator[str]:
    """What the reader cannot read, of the answers themselves and once they are redacted."""
    job = asked.job
    try:
        job.target.read(asked.answers, job.fitted.state, job.fitted.capabilities)
    except MltswitchError as error:
        yield f"the reader cannot read its answers, which makes the capture worth sending: {error}"
        return
    try:
        device.read()
    except MltswitchError as error:
        yield f"redacted, its answers cannot be read any more: {error}"


def _with_notes(entry: DeviceReport, notes: tuple[str, ...]) -> DeviceReport:
    return replace(entry, notes=(*entry.notes, *notes)) if notes else entry
