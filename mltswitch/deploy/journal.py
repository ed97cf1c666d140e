"""The journal of all changes, on the disk before each step; `status`, `resume` and `rollback` read it.

A change has a folder of its own in the state directory:

    changes/20261126-120501-347561/change.json        who, when, which inventory and devices
                                   plan.json          what they were to run
                                   journal.jsonl      a line for each step of each device, flushed to the disk
                                   before@leaf1.json  what leaf1 answered before anything was sent to it

A step is written, and on the disk, before it is begun. So whatever ends the process, the last line of a
device says the most that can have happened to it.
"""

import errno
import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pydantic import ValidationError

from mltswitch.deploy.rollout import Rollout
from mltswitch.deploy.state_directory import (
    STATE_VARIABLE,
    Record,
    Work,
    named_errors,
    state_directory,
    subfolder,
    timestamp,
)
from mltswitch.documents import load_document
from mltswitch.errors import MachineError, UserInputError
from mltswitch.outputs import write_together
from mltswitch.plan import Plan

_HEADER: Final = "change.json"
_PLAN: Final = "plan.json"
_BEFORE: Final = "before@"
"""Begins the name of a backup, and no name of a host: one may be called `plan` or `change`."""


class State(StrEnum):
    """How far one device has come in one change."""

    PLANNED = "planned"
    """The device belongs to the change, and nothing was sent to it."""
    STAGED = "staged"
    """The device's former configuration is on the disk; any part of the change may be in effect."""
    APPLIED = "applied"
    """The device has accepted every line of the change."""
    VERIFIED = "verified"
    """The device was read back and runs the plan; from now on it may be saved."""
    CONFIRMED = "confirmed"
    """The device runs the plan, and has saved it if it can."""
    UNCHANGED = "unchanged"
    """The device ran the plan already, and was only told to save it."""
    ROLLING_BACK = "rolling-back"
    """The device is being rolled back; any part of that may be in effect."""
    ROLLED_BACK = "rolled-back"
    """The device was read back and runs again what it ran before the change."""
    UNCERTAIN = "uncertain"
    """The device is to be rolled back, but may still be working on what was sent to it."""
    DROPPED = "dropped"
    """Nothing of the change took effect on the device, and nothing will."""
    CONTINUED = "continued"
    """A later change has taken over the device, and would roll it back to before this one."""
    ABANDONED = "abandoned"
    """The operator has said that nobody will finish the change on this device."""


_GIVEN_AWAY: Final = (State.CONTINUED, State.ABANDONED)
_BACK: Final = (State.ROLLING_BACK, State.UNCERTAIN)
TRANSITIONS: Final[Mapping[State, frozenset[State]]] = MappingProxyType(
    {
        State.PLANNED: frozenset({State.STAGED, State.UNCHANGED, State.DROPPED}),
        State.STAGED: frozenset({State.APPLIED, State.DROPPED, *_BACK, *_GIVEN_AWAY}),
        State.APPLIED: frozenset({State.VERIFIED, State.STAGED, *_BACK, *_GIVEN_AWAY}),
        State.VERIFIED: frozenset({State.CONFIRMED, State.STAGED, *_BACK, *_GIVEN_AWAY}),
        State.CONFIRMED: frozenset({State.ROLLING_BACK}),
        State.ROLLING_BACK: frozenset({State.ROLLED_BACK, State.UNCERTAIN, *_GIVEN_AWAY}),
        State.UNCERTAIN: frozenset({State.ROLLING_BACK, *_GIVEN_AWAY}),
        State.UNCHANGED: frozenset(),
        State.ROLLED_BACK: frozenset(),
        State.DROPPED: frozenset(),
        **dict.fromkeys(_GIVEN_AWAY, frozenset[State]()),
    }
)
"""State → the states that may follow it; a resumed change may send lines again, and is STAGED once more."""


def state_diagram() -> str:
    """The transitions between states as a Mermaid diagram."""
    arrows = [f"    {state} --> {later}" for state, after in TRANSITIONS.items() for later in sorted(after)]
    return "\n".join(["stateDiagram-v2", "    [*] --> planned", *arrows]) + "\n"


OPEN: Final = frozenset({State.STAGED, State.APPLIED, State.VERIFIED, *_BACK})
"""States in which the device may run neither configuration as a whole, or has not saved the new one."""

GOES_BACK: Final = frozenset(_BACK)
"""States from which `resume` rolls the device back to what it ran before."""

GOES_FORWARD: Final = (OPEN - GOES_BACK) | {State.PLANNED}
"""States from which `resume` makes the device run the plan."""

UNDOABLE: Final = OPEN | {State.CONFIRMED}
"""States from which the device can go back to what it ran before."""


class Header(Record):
    """The description of a change, written before anything is sent."""

    identifier: str
    work: Work
    inventory_paths: tuple[Path, ...]
    plan_sha256: str
    serial: str
    """Sizes of the waves, in the words of `Rollout.serial`."""
    max_fail_percentage: float
    atomic: bool
    confirm_seconds: int | None = None
    """After how many seconds the devices roll themselves back unless confirmed; None: never."""

    @property
    def rollout(self) -> Rollout:
        """How the push was to go through the devices: waves, failure limit, atomicity, timer."""
        return Rollout(self.serial, self.max_fail_percentage, self.atomic, self.confirm_seconds)

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the change's devices, in the inventory's order."""
        return tuple(self.work.devices)


class Entry(Record):
    """A line of the journal: one step of one device."""

    at: str
    """When the step was written, in UTC, as ISO 8601 writes it."""
    device: str
    state: State
    note: str = ""
    """Why something went wrong; else empty."""


class Backup(Record):
    """What one device ran before a change, and what the change was to send."""

    device: str
    answers: dict[str, str]
    """Query → the device's answer before the change."""
    change: str
    """The change that was to be sent, in the device's own language."""
    may_be_saved: bool
    """Whether an earlier change, taken over by this one, may have saved another configuration than this."""
    sha256: str
    """SHA-256 of the answers: a backup file that somebody has edited is not sent to a switch."""


@dataclass(frozen=True, slots=True)
class Journal:
    """One change as its files record it; threads may record steps at once."""

    folder: Path
    header: Header
    entries: list[Entry]
    last: dict[str, State]
    """Name of a device → its last recorded state."""
    _writing: threading.Lock

    @property
    def identifier(self) -> str:
        """Name of the change, later ones sort behind earlier ones."""
        return self.header.identifier

    def state(self, device: str) -> State:
        """The last recorded state of the device in this change."""
        return self.last[device]

    def came_to(self, device: str, state: State) -> bool:
        """Whether the device was ever in this state in this change."""
        return any(entry.device == device and entry.state is state for entry in self.entries)

    def begun(self, device: str) -> datetime:
        """When the first step of the device was recorded; each device of a change has at least one."""
        return datetime.fromisoformat(next(entry.at for entry in self.entries if entry.device == device))

    def plan(self) -> Plan:
        """The plan that this change was to put on the devices.

        Raises UserInputError where the plan's file has another checksum than the journal's first line says.
        """
        path = self.folder / _PLAN
        if hashlib.sha256(_read(path)).hexdigest() != self.header.plan_sha256:
            raise UserInputError("is not the plan of this change any more", where=str(path))
        return load_document(path, Plan)

    def record(self, device: str, state: State, note: str = "") -> None:
        """Write one step of one device, and return when it is on the disk; raises MachineError."""
        present = self.state(device)
        if state is present and state in {State.ROLLING_BACK, State.UNCERTAIN, State.STAGED}:
            return  # taken up again
        if state not in TRANSITIONS[present]:
            raise ValueError(f"{device}: {state} after {present}")
        entry = Entry(at=timestamp(), device=device, state=state, note=note)
        line = entry.model_dump_json(exclude_defaults=True) + "\n"
        with self._writing:
            _append(self.folder / "journal.jsonl", line.encode())
            self.entries.append(entry)
            self.last[device] = state

    def may_be_saved(self, device: str) -> bool:
        """Whether the device may boot another configuration than it ran before the change."""
        return self.came_to(device, State.VERIFIED) or self.backup(device).may_be_saved

    def stage(
        self, device: str, answers: Mapping[str, str], change: str, *, may_be_saved: bool = False
    ) -> None:
        """Save what the device runs, then record that it may run something else from now on."""
        # A resumed change goes back to what ran before its first try, which may have ended before this line.
        if self.state(device) is State.PLANNED or not self.has_backup(device):
            backup = Backup(
                device=device,
                answers=dict(answers),
                change=change,
                may_be_saved=may_be_saved,
                sha256=_digest(answers),
            )
            path = self.folder / f"{_BEFORE}{device}.json"
            _write([(path, backup.model_dump_json(indent=1) + "\n")])
            path.chmod(0o600)
        self.record(device, State.STAGED)

    def backup(self, device: str) -> Backup:
        """The device's backup from before the change; raises UserInputError where it is missing or edited."""
        path = self._backup_path(device)
        try:
            backup = Backup.model_validate_json(_read(path))
        except ValidationError:
            backup = None
        if backup is None or backup.sha256 != _digest(backup.answers):
            raise UserInputError(
                "is damaged, so what ran before is not known",
                where=str(path),
                hint="push a plan that you trust",
            )
        return backup

    def has_backup(self, device: str) -> bool:
        """Whether the device has a backup, so that something may have been sent to it."""
        return self._backup_path(device).is_file()

    def _backup_path(self, device: str) -> Path:
        """Where a backup is; earlier versions wrote it under the device's name alone."""
        path, earlier = (self.folder / f"{prefix}{device}.json" for prefix in (_BEFORE, ""))
        is_earlier = not path.exists() and earlier.name.lower() not in {_HEADER, _PLAN} and earlier.exists()
        return earlier if is_earlier else path


def begin(work: Work, plan: Plan, inventory_paths: Iterable[Path], rollout: Rollout) -> Journal:
    """Record a new change, with every device planned; raises MachineError where it cannot be written."""
    identifier = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
    latest = max((path.name for path in subfolder("changes").iterdir()), default="")
    if identifier <= latest:  # the clock was set back, and a later change must sort behind
        identifier = f"{latest}a"
    folder = subfolder("changes") / identifier
    text = plan.model_dump_json(by_alias=True, indent=1) + "\n"
    header = Header(
        identifier=identifier,
        work=work,
        inventory_paths=tuple(inventory_paths),
        plan_sha256=hashlib.sha256(text.encode()).hexdigest(),
        **asdict(rollout),
    )
    files = ((folder / _PLAN, text), (folder / _HEADER, header.model_dump_json(indent=1) + "\n"))
    with named_errors(folder):
        folder.mkdir(mode=0o700)
    _write(files)
    _flush(folder.parent)
    return _journal(folder, header, [])


def changes() -> list[Journal]:
    """Every change on record, the latest first; raises UserInputError where the record cannot be read."""
    folder = state_directory() / "changes"
    return [_load(folder / name) for name in reversed(_names(folder))]


def change(identifier: str | None) -> Journal:
    """The change whose name begins with `identifier` (None: the latest); raises UserInputError."""
    folder = state_directory() / "changes"
    names = _names(folder)
    matches = [name for name in names if name.startswith(identifier or "")]
    if not names or not matches:
        what = f"there is no change {identifier!r}" if names else "there is no change on record"
        raise UserInputError(what, where=str(folder), hint="`mltswitch history` lists them" if names else "")
    if identifier is not None and len(matches) > 1 and identifier not in matches:
        raise UserInputError(f"{len(matches)} changes begin with {identifier!r}", where=str(folder))
    return _load(folder / (identifier if identifier in matches else matches[-1]))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir() if (path / _HEADER).is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserInputError(
            f"the record of changes cannot be read: {error.strerror}",
            where=str(folder),
            hint=f"{STATE_VARIABLE} names another folder",
        ) from None


def before(journal: Journal) -> list[Journal]:
    """The changes that were begun before this one, the latest first."""
    return [each for each in changes() if each.identifier < journal.identifier]


def after(journal: Journal) -> list[Journal]:
    """The changes that were begun after this one, the latest first."""
    return [each for each in changes() if each.identifier > journal.identifier]


def counted(states: Iterable[State]) -> str:
    """How many devices are in each state, as text: `3 confirmed, 1 staged`."""
    counts = Counter(states)
    return ", ".join(f"{counts[state]} {state}" for state in State if counts[state])


def open_changes(
    devices: Mapping[str, str], journals: Iterable[Journal], states: Collection[State] = OPEN
) -> dict[str, list[Journal]]:
    """Device → the changes that are in one of these states on it (default: unfinished), in the order of
    `journals`.

    A device is recognized by its name and its address.
    """
    found: dict[str, list[Journal]] = {}
    for journal in journals:
        for name, address in journal.header.work.devices.items():
            if devices.get(name) == address and journal.last[name] in states:
                found.setdefault(name, []).append(journal)
    return found


def _load(folder: Path) -> Journal:
    """Raises UserInputError for a damaged record: who pushed it must be asked, and not be forgotten."""
    hint = f"see what its switches run; then move {folder} elsewhere, and go on without it"
    try:
        header = load_document(folder / _HEADER, Header)
    except UserInputError as error:
        error.hint = hint
        raise
    entries: list[Entry] = []
    path = folder / "journal.jsonl"
    lines = _read(path).split(b"\n") if path.exists() else []
    # What stands behind the last line end was never finished, so what it announces was never begun.
    for number, line in enumerate(lines[:-1], 1):
        try:
            entries.append(Entry.model_validate_json(line))
        except ValidationError:
            raise UserInputError("is no line of a journal", where=f"{path}:{number}", hint=hint) from None
    return _journal(folder, header, entries)


def _journal(folder: Path, header: Header, entries: list[Entry]) -> Journal:
    last = dict.fromkeys(header.devices, State.PLANNED) | {entry.device: entry.state for entry in entries}
    return Journal(folder, header, entries, last, threading.Lock())


def _append(path: Path, line: bytes) -> None:
    """Add the line, whole and flushed to the disk, or leave the file as it is; raises MachineError.

    What a power loss left of a line before it, without its end, goes: it would spoil this one.
    """
    with named_errors(path), path.open("a+b", buffering=0) as file:
        path.chmod(0o600)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        if file.read(1) not in {b"", b"\n"}:
            file.seek(0)
            size = file.read().rfind(b"\n") + 1
            file.truncate(size)
        try:
            written = file.write(line)
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise
        if written != len(line):  # half a line would spoil the next one
            file.truncate(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _digest(answers: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(answers), sort_keys=True).encode()).hexdigest()


def _write(files: Iterable[tuple[Path, str]]) -> None:
    try:
        write_together(files)
    except UserInputError as error:
        raise MachineError(error.what, where=error.where) from None


def _read(path: Path) -> bytes:
    with named_errors(path):
        return path.read_bytes()


def _flush(folder: Path) -> None:
    """A new file's name is on the disk when its folder is."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
