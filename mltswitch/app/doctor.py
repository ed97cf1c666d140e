"""What mltswitch's commands need of this machine, whether it is there, and the command that mends it.

The host agent has a doctor of its own for training hosts (`mltswitch.hostagent.doctor`); this one is for the
machine on which an operator plans and pushes, and for labs.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement

from mltswitch.deploy.state_directory import OTHERS, STATE_VARIABLE, state_directory
from mltswitch.errors import MachineError
from mltswitch.hostagent.doctor.report import Finding, Status
from mltswitch.inventory.ansible import ansible_program
from mltswitch.lab.bmv2 import has_mininet
from mltswitch.lab.bmv2_node import PROGRAM as BMV2
from mltswitch.lab.kernel import examine
from mltswitch.lab.model import LabMode
from mltswitch.p4.build import find_compiler

DISTRIBUTION: Final = "mltswitch"
EVERYTHING: Final = "every command"
DEVELOPMENT: Final = frozenset({"dev", "docs", "release"})
"""Extras of those who change and release mltswitch; no command needs them."""
UNKNOWN: Final = "nothing that this version knows"
EXTRAS: Final = {
    "agent": "agent: keys, metrics, paths, and the doctor of training hosts",
    "ansible": "inventories read by Ansible itself: plug-ins, vaults, its precedence",
    "dask": "sweep and profile measure on the workers of a Dask cluster",
    "deploy": "diff, push, verify and watch over SSH",
    "gnmi": "OpenConfig switches",
    "lab": "lab: the keys and emulated switches of a network on this machine",
    "metrics": "watch --prometheus, and metrics of agents",
    "p4": "BMv2 switches, by P4Runtime",
    "report": "pictures: --report, topology show",
    "sim": "the loss model simulate, topology between sites, Parquet tables of sweep",
    "torch": "profile from-torch, and training over the host agent",
    "train": "profile measure, train bench",
}
"""Optional packages by extra, and what they are needed for."""
KNOWN_HOSTS: Final = Path("~/.ssh/known_hosts")
"""Where host keys are looked for unless the inventory says mltswitch_known_hosts_file."""


class Program(NamedTuple):
    """A program that some commands start."""

    name: str
    package: str
    """Of Debian."""
    needed_for: str


PROGRAMS: Final = (
    Program("ssh", "openssh-client", "acceptance, which reaches hosts by ssh; push has its own client"),
    Program("ip", "iproute2", "lab, and agent paths --setup"),
    Program("gcc", "gcc", "train bench, lab wan, and building the host agent's data plane"),
)


@dataclass(frozen=True, slots=True)
class Need(Finding):
    """A finding about something that commands need; its hint is the command that mends it."""

    needed_for: str = ""


def operator_needs() -> Iterator[Need]:
    """What is there and what is missing; only what every command needs is an error. Changes nothing."""
    yield from _packages()
    yield _data_plane()
    yield from map(_program, PROGRAMS)
    yield _ansible()
    yield _known_hosts()
    yield _state()
    yield _lab()
    yield from _bmv2()


def _packages() -> Iterator[Need]:
    """Python itself, what the base install requires, and each extra."""
    running = ".".join(map(str, sys.version_info[:3]))
    yield Need(Status.OK, "Python", running, needed_for=EVERYTHING)
    try:
        about = metadata(DISTRIBUTION)
        required = [Requirement(text) for text in about.get_all("Requires-Dist", ())]
    except PackageNotFoundError:
        what = f"{DISTRIBUTION} is not installed, so nobody knows what it requires"
        yield Need(Status.ERROR, "packages", what, "`pip install .` in the clone", EVERYTHING)
        return
    base = [each for each in required if _is_wanted(each, "")]
    yield _required("packages", base, EVERYTHING, "", Status.ERROR)
    for extra in sorted(about.get_all("Provides-Extra", ())):
        own = [each for each in required if _is_wanted(each, extra) and each not in base]
        if extra not in DEVELOPMENT:
            needed_for = EXTRAS.get(extra, UNKNOWN)
            yield _required(f"extra {extra}", own, needed_for, f"[{extra}]", Status.WARNING)


def _is_wanted(required: Requirement, extra: str) -> bool:
    return required.marker is None or required.marker.evaluate({"extra": extra})


def _required(where: str, required: list[Requirement], needed_for: str, extra: str, status: Status) -> Need:
    """One finding for packages that are installed together."""
    found, wrong = [], []
    for each in required:
        try:
            installed = version(each.name)
        except PackageNotFoundError:
            wrong.append(f"{each.name} is missing")
            continue
        if each.specifier.contains(installed, prereleases=True):
            found.append(f"{each.name} {installed}")
        else:
            wrong.append(f"{each.name} {installed} is not {each.specifier}")
    if not wrong:
        return Need(Status.OK, where, ", ".join(found), needed_for=needed_for)
    return Need(status, where, ", ".join(wrong), f"`pip install '{DISTRIBUTION}{extra}'`", needed_for)


def _data_plane() -> Need:
    """The same question as the host agent's doctor asks, by the same import."""
    where, needed_for = "data plane", "agent and train, but for the transport tcp"
    try:
        import mltswitch.hostagent.dataplane.binding  # noqa: F401  (only whether it is there)
    except MachineError as error:
        return Need(Status.WARNING, where, error.what, error.hint, needed_for)
    return Need(Status.OK, where, "compiled", needed_for=needed_for)


def _program(program: Program) -> Need:
    place = shutil.which(program.name) or shutil.which(program.name, path="/usr/sbin:/sbin")
    if place is not None:
        return Need(Status.OK, program.name, place, needed_for=program.needed_for)
    hint = f"`apt-get install {program.package}`"
    return Need(Status.WARNING, program.name, "missing", hint, program.needed_for)


def _ansible() -> Need:
    place, needed_for = ansible_program(), EXTRAS["ansible"]
    if place is not None:
        return Need(Status.OK, "ansible-inventory", place, needed_for=needed_for)
    what = "missing: mltswitch reads inventories itself, YAML and INI without plug-ins"
    hint = f"`pip install '{DISTRIBUTION}[ansible]'`"
    return Need(Status.WARNING, "ansible-inventory", what, hint, needed_for)


def _known_hosts() -> Need:
    where, needed_for = str(KNOWN_HOSTS), "diff, push and verify, which refuse unknown host keys"
    hint = "`mltswitch trust -i INVENTORY`"
    try:
        text = KNOWN_HOSTS.expanduser().read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return Need(Status.WARNING, where, "missing", hint, needed_for)
    except RuntimeError:  # of expanduser
        what = "this user has no home directory"
        return Need(Status.WARNING, where, what, "`export HOME=FOLDER`", needed_for)
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        return Need(Status.WARNING, where, what, f"`chmod u+rw {where}`", needed_for)
    keys = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not keys:
        return Need(Status.WARNING, where, "no host key in it", hint, needed_for)
    return Need(Status.OK, where, f"host keys: {len(keys)}", needed_for=needed_for)


def _state() -> Need:
    """Whether the journal of changes can be written; the folder is not made."""
    where, needed_for = "state directory", "push, and every way back from it: the journal of changes"
    hint = f"`export {STATE_VARIABLE}=FOLDER`"
    try:
        folder = state_directory()
    except MachineError as error:
        return Need(Status.WARNING, where, error.what, hint, needed_for)
    # Unlike Path.exists, it takes what this user may not look into for missing, and goes on above that.
    there = next(each for each in (folder, *folder.parents) if os.path.exists(each))  # noqa: PTH110  (Path.exists of Python 3.11 raises in a closed folder)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Need(Status.WARNING, where, f"{there} cannot be written", hint, needed_for)
    if there == folder and folder.stat().st_mode & OTHERS:
        what = f"others may read or write {folder}, which push refuses"
        return Need(Status.WARNING, where, what, f"`chmod o-rwx {folder}`", needed_for)
    what = "can be written" if there == folder else "the first push will make it"
    return Need(Status.OK, where, f"{folder}: {what}", needed_for=needed_for)


def _lab() -> Need:
    """How a lab would run on this kernel, as `lab up` finds it out, and why not better."""
    where, needed_for = "kernel, for a lab", "lab up: Linux switches on this machine"
    machine = examine()
    why = "; ".join(machine.missing)
    if machine.mode is LabMode.EMULATORS_ONLY:
        hint = "`apt-get install iproute2 util-linux ethtool openssh-server user-mode-linux`"
        return Need(Status.WARNING, where, why, hint, needed_for)
    return Need(Status.OK, where, why or "network namespaces, queues and bridges work", needed_for=needed_for)


def _bmv2() -> Iterator[Need]:
    yield _program(Program(BMV2, "p4lang-bmv2", "labs of BMv2 switches (docs/p4.md has its apt source)"))
    needed_for = "p4 build, after a change of the P4 sources"
    try:
        compiler = find_compiler()
    except MachineError as error:
        yield Need(Status.WARNING, "p4c", error.what, error.hint, needed_for)
    else:
        yield Need(Status.OK, "p4c", f"{compiler.path}, version {compiler.version}", needed_for=needed_for)
    status, what, hint = Status.OK, "found", ""
    if not has_mininet():
        status, what, hint = Status.WARNING, "missing", "`apt-get install mininet`"
    yield Need(status, "mininet", what, hint, "labs of BMv2 switches by mininet, instead of plain namespaces")
