"""What a host keeps for its next start: the batch files, and the systemd unit that runs them.

tc and ip keep nothing, and what configures a host's interfaces differs from one distribution to the next. So
mltswitch writes its own files and unit, in places where nobody else writes.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mltswitch.errors import DeviceError
from mltswitch.targets.base import Step
from mltswitch.targets.common import NOT_SAVED
from mltswitch.targets.linux.files import QDISC_FILE, ROUTE_FILE, write_files
from mltswitch.targets.linux.lines import FORWARDING
from mltswitch.targets.state import SwitchState

FOLDER: Final = "/etc/mltswitch"
UNIT: Final = "mltswitch.service"
SIGN: Final = "# Written by mltswitch"
"""First words of every file that mltswitch writes; a file that begins otherwise is somebody else's."""
_QUEUES: Final = f"{FOLDER}/{QDISC_FILE}"
_ROUTES: Final = f"{FOLDER}/{ROUTE_FILE}"
_UNIT_FILE: Final = f"/etc/systemd/system/{UNIT}"
_FILES: Final = (_QUEUES, _ROUTES, _UNIT_FILE)
IS_SYSTEMD: Final = "test -d /run/systemd/system"
"""Shell test of whether systemd is the host's init (sd_booted(3))."""
SAVED_QUERY: Final = (
    f"if {IS_SYSTEMD}; then echo systemd; for file in {' '.join(_FILES)}; do if test -e $file; then "
    f"sha256sum $file; head -n 1 $file | grep -c '^{SIGN}'; fi; done; "
    f"systemctl is-enabled {UNIT} 2>/dev/null; fi; true"
)
_SAVED: Final = re.compile(f"^(.*?)  ({'|'.join(_FILES)})$\n?(.*)", re.MULTILINE)
"""A file's digest, its name, and how many of its first lines are ours."""
_NOT_PERSISTENT: Final = (
    "not persistent: this host does not run systemd, so a reboot loses queues and routes until the next push"
)
_SAVED_ANEW: Final = (
    f"# {FOLDER}: what was saved before cannot be written again; the way back saves what ran before\n"
)


@dataclass(frozen=True, slots=True)
class Saved:
    """The saved files on a host's disk."""

    has_systemd: bool
    digests: Mapping[str, str]
    """Path of a file → its SHA-256."""
    foreign: tuple[str, ...]
    """Paths of mltswitch's files that somebody else wrote."""
    is_enabled: bool


def read_saved(answer: str) -> Saved:
    """Parse the answer to `SAVED_QUERY`; raises DeviceError for one that cannot be understood."""
    digests: dict[str, str] = {}
    foreign: list[str] = []
    for digest, file, signs in _SAVED.findall(answer):
        if signs not in ("0", "1"):
            raise DeviceError(f"the answer cannot be read: {signs[:80]!r}", where=SAVED_QUERY)
        digests[file] = digest
        foreign += [file] if signs == "0" else []
    lines = answer.split("\n")
    return Saved(lines[0] == "systemd", digests, tuple(foreign), "enabled" in lines)


def save_notes(saved: Saved, wanted: SwitchState) -> tuple[str, ...]:
    """Notes for the operator about the next reboot."""
    if not saved.has_systemd:
        return (_NOT_PERSISTENT,)
    return () if _is_current(saved, saved_files(wanted)) else (NOT_SAVED,)


def save_steps(answers: Mapping[str, str], wanted: SwitchState) -> tuple[Step, ...]:
    """Steps that save the plan where other files are saved; none where the host cannot save.

    Every file is written whole beside its place and then moved there. Raises DeviceError for a file that
    somebody else wrote.
    """
    if SAVED_QUERY not in answers:
        return ()
    saved = read_saved(answers[SAVED_QUERY])
    files = saved_files(wanted)
    is_due = saved.has_systemd and not _is_current(saved, files)
    return _writing(saved, files, is_enabled=True) if is_due else ()


def restoring_saves(
    before: Mapping[str, str], running: Mapping[str, str], state: SwitchState
) -> tuple[tuple[Step, ...], str]:
    """The steps that restore the files which were saved before, and a note on them for the operator.

    Not the files themselves were recorded, only their digests: they are rendered from the state that ran
    before. Where that does not give the same text, because they held other ports or another version wrote
    them, it is saved all the same: a reboot brings what runs after the way back.
    """
    if SAVED_QUERY not in running:
        return (), ""
    was, now = read_saved(before[SAVED_QUERY]), read_saved(running[SAVED_QUERY])
    if not now.has_systemd or was == now:
        return (), ""
    if not was.digests:
        _check_ours(now)
        files = " ".join([*_FILES, *map(_beside, _FILES)])
        disable = f"if test -e {_UNIT_FILE}; then systemctl --quiet disable {UNIT}; fi"
        return (
            Step(f"{disable} && rm -f {files} && systemctl daemon-reload"),
            Step(f"rmdir {FOLDER} || true"),  # others may have files there
        ), ""
    texts = saved_files(state)
    steps = _writing(now, texts, is_enabled=was.is_enabled)
    return steps, "" if _digests(texts) == was.digests else _SAVED_ANEW


def _writing(saved: Saved, files: Mapping[str, str], *, is_enabled: bool) -> tuple[Step, ...]:
    _check_ours(saved)
    places = {file: _beside(file) for file in files}
    moves = " && ".join(f"mv -f {new} {file}" for file, new in places.items())
    enable = "enable" if is_enabled else "disable"
    return (
        Step(f"mkdir -p -m 755 {FOLDER}"),
        *(Step(f"umask 022 && cat >{places[file]}", text) for file, text in files.items()),
        Step(f"sync && {moves} && systemctl daemon-reload && systemctl --quiet {enable} {UNIT}"),
    )


def _check_ours(saved: Saved) -> None:
    if saved.foreign:
        file = saved.foreign[0]
        raise DeviceError(
            "somebody else wrote this file, so it is not replaced",
            where=file,
            hint=f"look at it, then: rm {file}",
        )


def _beside(file: str) -> str:
    folder, _, name = file.rpartition("/")
    return f"{folder}/.{name}.new"


def _is_current(saved: Saved, files: Mapping[str, str]) -> bool:
    return saved.is_enabled and _digests(files) == saved.digests


def _digests(files: Mapping[str, str]) -> dict[str, str]:
    return {file: hashlib.sha256(text.encode()).hexdigest() for file, text in files.items()}


def saved_files(state: SwitchState) -> dict[str, str]:
    """Path of a file on the host → its text."""
    rendered = write_files(state)
    return {_QUEUES: rendered[QDISC_FILE], _ROUTES: rendered[ROUTE_FILE], _UNIT_FILE: unit_text(state)}


def unit_text(state: SwitchState) -> str:
    """The systemd unit, which runs once at the host's start, after the network and every port of the plan.

    A port that does not appear within systemd's time limit for devices (DefaultDeviceTimeoutSec, 90 s) is
    given up: `-force` goes on with the other ports, and the unit is marked as failed.
    """
    # The name of an interface in that of its unit: systemd.unit(5), String Escaping.
    names = [port.name.replace("-", "\\x2d") for port in state.ports]
    wait_for = ["network-online.target", *(f"sys-subsystem-net-devices-{name}.device" for name in names)]
    after = "".join(f"Wants={unit}\nAfter={unit}\n" for unit in wait_for)
    forward = "" if state.segment_routing is None else f"{FORWARDING}; "
    # systemd makes $ of $$. Routes are set even where queues fail: without them nothing arrives.
    script = (
        f"tc -force -batch {_QUEUES}; queues=$$?; {forward}"
        f"ip -force -batch {_ROUTES}; routes=$$?; test $$queues$$routes = 00"
    )
    return f"""\
{SIGN}: sets at the next start what the last push left. Change it by a push.
[Unit]
Description=Queues and routes of mltswitch
{after}
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c '{script}'

[Install]
WantedBy=multi-user.target
"""
