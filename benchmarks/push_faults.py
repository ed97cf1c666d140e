"""Pushes that are disturbed, and what one `mltswitch resume` or `rollback` makes of them.

    python -m benchmarks.push_faults [--quick] [--json] [--runs N] [--seed N] [--first N]

Each run draws two to four emulated switches, fresh from the factory or with an earlier plan (at times the
same one), `--atomic`, `--serial 1` and a fault. They are real SSH servers, and `mltswitch push` is a process
that can be killed; it is forked with its modules loaded, and reads the inventory as where ansible-core is not
installed, which saves two seconds a command. Then the fault is lifted, and the operator runs `status`, and
`resume` or `rollback`; three in ten of those are disturbed, too. Where a switch is not settled then, the
operator runs the same again, or `rollback` where `resume` says so. Nothing else.

After that each switch's whole configuration, running and saved, must be what it was, or what the undisturbed
push makes of a twin, as its state in the journal says; of an atomic push, on all of them alike.

    runs                     each with a fault, by kind in `runs_KIND`; `missed_KIND`: faults that waited for
                             a line which the switch never got
    devices                  in all runs
    devices_half_configured  neither the old nor the new configuration
    journal_disagreements    the journal or `status` says one, and the switch runs the other
    wrong_box_accepted       something changed on a box that is not the one of the inventory
    human_needed             a switch is not settled after two commands, or a command ended by a bug
    atomic_mixed             an atomic push is in effect on some switches only
    record_contradicts_device  `status` ends with 0, and the switch runs what the journal does not say
    foreign_change_lost      of two operators one has success, and the switch does not run his plan, or the
                             plan of whoever came after him; or neither has, and it runs a mixture

All of these but the first two have to be 0. What is not, is told on standard error, with all that it takes to
see it again: `--seed S --first RUN --runs 1`. Kills after a time do not fall on the same line each time.

    kill_time, kill_line, kill_journal
                     kill -9 after a time, as a switch gets a line, after a line of the journal
    hang             a switch does not answer a line: kill -9, or `--device-timeout`
    refuse           a line is refused, once or until the fault is lifted
    space            nothing can be saved for want of space
    drop, unplug     the connection breaks at a line; the switch stays away until the fault is lifted
    reboot           at a line, so that what is not saved is lost
    deaf             a line is answered as if all were well, and ignored; none that saves, which no read shows
    wrong_box        another box answers at a switch's address
    late             a switch thinks longer about a line than `--device-timeout` allows, and then does it
    two_operators    somebody pushes another plan at the same time, from a state directory of his own

The longest line takes five seconds here, and not thirty, for what mltswitch waits and for switches alike.
"""

import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import unified_diff
from multiprocessing.connection import wait
from pathlib import Path
from random import Random
from typing import Final
from unittest.mock import patch

import click

from benchmarks.emulated import Rack
from benchmarks.figures import print_figures
from benchmarks.twins import ask, configured, fabric_plans, snapshot
from mltswitch.deploy.journal import OPEN, Entry, State
from mltswitch.inventory import Device
from mltswitch.plan import Plan
from mltswitch.targets import Target, target_for
from switchsim import (
    KINDS,
    Accept,
    Drop,
    EmulatorServer,
    EosDevice,
    Faults,
    Late,
    Reboot,
    Refuse,
)
from switchsim.device import EmulatedDevice
from switchsim.faults import Fault

ACCEPT: Final = ("--accept",)
RUNS: Final = 500
QUICK_RUNS: Final = 20
AT_ONCE: Final = 8
KINDS_OF_FAULT: Final = (
    *("kill_time", "kill_line", "kill_line", "kill_journal", "hang", "refuse", "space", "drop", "unplug"),
    *("reboot", "deaf", "wrong_box", "late", "late", "two_operators", "two_operators"),
)
PORTS: Final = 4
SECOND_FAULTS: Final = ("kill_line", "drop", "reboot", "refuse", "wrong_box")
SECOND_FAULT_SHARE: Final = 0.3
LONGEST_SECONDS: Final = 300.0
"""For one command; shells get two minutes for a command of theirs."""
HANG_SECONDS: Final = 0.5
"""After which the operator kills the push."""
OPERATOR_LATE_SECONDS: Final = 3600.0
"""EOS undoes by itself what nobody has confirmed after ten minutes."""
LATE_SECONDS: Final = 5.0
"""The longest that a line takes."""
SCALED: Final[Mapping[str, float]] = {
    "mltswitch.deploy.transaction.LINE_SECONDS": LATE_SECONDS,
    "mltswitch.deploy.transaction.SAVE_SECONDS": LATE_SECONDS,
    "mltswitch.deploy.occupation.IDLE_SECONDS": 2.0,
}
SHOWN_LINES: Final = 12
ATOMIC_HINT: Final = "takes the others back, too"
"""What `resume` says where devices of an atomic change went back."""
SIMPLE: Final[Mapping[str, Fault]] = {
    "deaf": Accept(),
    "drop": Drop(),
    "reboot": Reboot(),
    "refuse": Refuse("% Refused [emulator]"),
    "space": Refuse("% Error: No space left on device"),
}
SETTLED: Final[Mapping[State, str]] = {
    **dict.fromkeys((State.CONFIRMED, State.UNCHANGED), "new"),
    **dict.fromkeys((State.ROLLED_BACK, State.DROPPED, State.PLANNED), "old"),
}
"""What a switch must run and have saved."""
VIOLATIONS: Final = (
    "devices_half_configured",
    "journal_disagreements",
    "wrong_box_accepted",
    "human_needed",
    "atomic_mixed",
    "record_contradicts_device",
    "foreign_change_lost",
)
_PRELOADED: Final = (
    *(
        "benchmarks.emulated",
        "benchmarks.twins",
        "mltswitch.planning",
        "mltswitch.cli",
        "mltswitch.cli.deploy",
        "mltswitch.cli.changes",
    ),
    *(
        "mltswitch.deploy.command_line",
        "nornir.core",
        "nornir.plugins.runners",
        "mltswitch.deploy.shell",
        "mltswitch.deploy.trust",
    ),
)


_FRAME: Final = re.compile(r" && echo [0-9a-f]{16} && ")
"""What a shell's session puts between steps that it sends together."""
_MARK: Final = re.compile("mlt-[0-9a-f]{8}-[0-9a-f]{8}")
_planning: Final = threading.Lock()
_starting: Final = threading.Lock()  # a start asks after all processes: it took the exit codes of other runs


@dataclass
class Trouble(Faults):
    """Does something as a switch gets a line of a change, the `at`-th from 1, until it is lifted."""

    lines: frozenset[str] = frozenset()
    at: int = 0
    act: Callable[[], Fault | None] = lambda: None
    repeats: bool = False
    """At the same line again."""
    count: int = 0
    victim: str | None = None

    def on_line(self, number: int, line: str) -> Fault | None:
        """The fault, at its line; of steps that come together, none reaches the switch then."""
        del number
        for step in _FRAME.split(line):
            if step not in self.lines or not self.at:
                continue
            self.count += 1
            if self.count == self.at:
                self.victim = step
            if step == self.victim and (self.count == self.at or self.repeats):
                return self.act()
        return None


@dataclass
class Box:
    """One switch of a run."""

    name: str
    target: Target
    server: EmulatorServer
    trouble: Trouble
    change: tuple[str, ...]
    save: tuple[str, ...]
    back: tuple[str, ...]
    """Lines of the way back."""
    old: tuple[str, str]
    new: tuple[str, str]
    after: Mapping[str, str]
    """Who pushed, in order (a: the plan, b: the former one) → what it runs then."""

    def now(self) -> tuple[str, str]:
        """Running and saved."""
        return snapshot(self.server.device, self.target.platform)


@dataclass
class Ended:
    """One command of the operator's."""

    words: tuple[str, ...]
    code: int | None
    output: str

    def __str__(self) -> str:
        shown = self.output if "--json" not in self.words or self.code not in {0, 5} else "...\n"
        return f"$ mltswitch {' '.join(self.words)}\n{shown}[{self.code}]"


class Run:
    """One disturbed push."""

    def __init__(self, seed: int, number: int, folder: Path) -> None:
        self.name = f"seed {seed}, run {number}"
        self._random = random = Random(f"{seed}-{number}")  # noqa: S311  (no secret)
        self._folder = folder
        self._late_seconds = 0.0
        self._lifting: list[Callable[[], object]] = []
        self._lifted = threading.Event()
        self._pid = 0
        self.commands: list[Ended] = []
        self.violations: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.details: list[str] = []
        self.kind = random.choice(KINDS_OF_FAULT)
        self.is_atomic = random.random() < 0.4
        self.options = ("--atomic",) * self.is_atomic + ("--serial", "1") * (random.random() < 0.3)
        if self.kind == "late" or (self.kind == "hang" and random.random() < 0.5):
            self.options += ("--device-timeout", "3")
        leaves = random.randint(2, 4)
        platforms = tuple(sorted(random.sample(sorted(KINDS), random.randint(1, leaves))))
        with _planning:
            plan, former, devices = fabric_plans(leaves, platforms)
        self._rack = Rack(folder, devices)
        for name, document in (("plan.json", plan), ("other.json", former)):
            (folder / name).write_text(document.model_dump_json(by_alias=True), encoding="utf-8")
        self.boxes = [self._box(device, plan, former) for device in devices]

    def _box(self, leaf: Device, plan: Plan, former: Plan) -> Box:
        target = target_for(leaf.platform)
        start = self._random.choice((None, None, former, former, plan))
        switch, twin = (self._switch(leaf.name, leaf.platform) for _ in range(2))
        for each in (switch, twin):
            if start is not None:
                configured(each, target, start)
        change = configured(twin, target, plan)
        state, capabilities = (wanted := target.fit_to_hardware(plan, leaf.name)).state, wanted.capabilities
        before, after_it = (
            {query: ask(each, target, query) for query in target.queries(state)} for each in (switch, twin)
        )
        back = target.restore(before, target.read(after_it, state, capabilities), state, capabilities)
        trouble = Trouble()
        after = {"": snapshot(switch, leaf.platform)[0]}
        for order in ("a", "b", "ab", "ba") if self.kind == "two_operators" else ():
            third = self._switch(leaf.name, leaf.platform)
            for run in (start, *(plan if who == "a" else former for who in order)):
                if run is not None:
                    configured(third, target, run)
            after[order] = snapshot(third, leaf.platform)[0]
        return Box(
            leaf.name,
            target,
            self._rack.server(leaf.name, switch, trouble),
            trouble,
            tuple(step.command for step in change.steps),
            tuple(step.command for step in change.save),
            tuple(step.command for step in back.steps),
            snapshot(switch, leaf.platform),
            snapshot(twin, leaf.platform),
            after,
        )

    def _switch(self, name: str, platform: str) -> EmulatedDevice:
        if platform == "eos":
            return EosDevice(name, PORTS, clock=lambda: time.monotonic() + self._late_seconds)
        return KINDS[platform](name, PORTS)

    def carry_out(self) -> None:
        """Push, disturbed; then what the operator does; then compare."""
        with ExitStack() as stack:
            for box in self.boxes:
                box.server.start()
                stack.callback(box.server.stop)
            self._rack.write({box.name: box.server.port for box in self.boxes})
            plan = str(self._folder / "plan.json")
            words = ("push", plan, "-i", str(self._rack.inventory), *ACCEPT, "--yes", *self.options)
            if self.kind == "two_operators":
                self._push_both(words)
                return
            self._disturbed(self.kind, words)
            self._compare(is_final=False)
            if self._random.random() < 0.3:
                self._late_seconds = OPERATOR_LATE_SECONDS
            if self._journal() is not None:
                self._operate()
            self._compare(is_final=True)

    def _push_both(self, words: tuple[str, ...]) -> None:
        """Two pushes at once, which both end what they began; then whoever had success must have it."""
        ends: dict[str, str] = {}
        late = self._random.uniform(0, 1.5)

        def operator(name: str, plan: str, wait_seconds: float) -> None:
            time.sleep(wait_seconds)
            told = self._command(words[0], plan, *words[2:], "--json", state=f"state-{name}")
            begin = told.output.find("{")
            reports = json.JSONDecoder().raw_decode(told.output, begin)[0]["devices"] if begin >= 0 else []
            ends.update({f"{name} {each['device']}": each["status"] for each in reports})
            if told.code not in {0, 4}:
                self._violated("human_needed", f"push of {name} ended with {told.code}")

        other = threading.Thread(
            target=operator, args=("b", str(self._folder / "other.json"), late), daemon=True
        )
        other.start()
        operator("a", words[1], 0.0)
        other.join()
        for name in "ab":  # what is unfinished, one command takes back
            states = self._states(f"state-{name}")
            if any(state in OPEN for state in states.values()):
                self._command("rollback", state=f"state-{name}")
                ended = self._states(f"state-{name}")
                ends |= {f"{name} {each}": ended[each] for each in states if states[each] is not ended[each]}
                if still := [each for each in ended if ended[each] in OPEN]:
                    self._violated("human_needed", f"{name}: {still} after a rollback")
        for box in self.boxes:
            self._silent(box)
            won = "".join(
                who for who in "ab" if ends.get(f"{who} {box.name}") in {"changed", "ok", "would-change"}
            )
            now = box.now()[0]
            self.details.append(f"{box.name} ({box.target.platform}): success of {won or 'none'}")
            fits = {"ab", "ba"} if len(won) > 1 else {won}
            if now not in {box.after[order] for order in fits}:
                runs = [order for order, text in box.after.items() if text == now]
                self._violated("foreign_change_lost", f"{box.name}: runs what {runs} give, {ends}")

    def _operate(self) -> None:
        self._check_status(self._command("status", "--json"))
        words = self._random.choice((("resume", "--yes", *ACCEPT), ("rollback",)))
        second = self._random.choice(SECOND_FAULTS) if self._random.random() < SECOND_FAULT_SHARE else ""
        first = self._disturbed(second, words) if second else self._command(*words)
        for _ in range(2):  # that of an atomic change may be told only by the second one
            if any(state in OPEN for state in self._states().values()):
                first = self._command(*(("rollback",) if ATOMIC_HINT in first.output else words))
        self._check_status(self._command("status", "--json"))

    def _disturbed(self, kind: str, words: tuple[str, ...]) -> Ended:
        """A command with a fault, which is lifted afterwards."""
        self._lifted.clear()
        self.details.append(f"{words[0]}: {kind}")
        box = self._random.choice([box for box in self.boxes if box.change] or self.boxes)
        if kind == "wrong_box":
            self._swap(box)
        elif kind == "kill_time":
            timer = threading.Timer(self._random.uniform(0.02, 1.5), self._kill)
            timer.start()
            self._lifting.append(timer.cancel)
        elif kind == "kill_journal":
            lines = self._random.randint(1, 3 * len(self.boxes))
            threading.Thread(target=self._kill_after_journal, args=(lines,), daemon=True).start()
        else:
            self._trouble(kind, box, is_rollback=words[0] == "rollback")
        try:
            return self._command(*words)
        finally:
            self._lifted.set()
            for lift in self._lifting:
                lift()
            self._lifting.clear()
            for each in self.boxes:
                if each.trouble.at and each.trouble.victim is None:
                    self.missed[kind if words[0] == "push" else f"second_{kind}"] += 1
                each.trouble.at = 0
                self._silent(each)

    def _trouble(self, kind: str, box: Box, *, is_rollback: bool) -> None:
        trouble, random = box.trouble, self._random
        change = box.back if is_rollback else box.change
        lines = box.save if kind == "space" else change if kind == "deaf" else (*change, *box.save)
        trouble.lines, trouble.count, trouble.victim = frozenset(lines), 0, None
        trouble.at = 1 if kind == "space" else random.randint(1, max(1, len(lines)))
        trouble.repeats = kind == "space" or (kind == "refuse" and random.random() < 0.5)
        is_run = random.random() < 0.5
        waits = "--device-timeout" in self.options
        self.details.append(f"{box.name} line {trouble.at} of {len(lines)}, {trouble.repeats=} {waits=}")

        def act() -> Fault | None:
            match kind:
                case "kill_line":
                    self._kill()
                    return None if is_run else Drop()
                case "late":
                    return Late(random.uniform(2.0, LATE_SECONDS))
                case "hang":
                    if not waits:
                        threading.Timer(HANG_SECONDS, self._kill).start()
                    self._lifted.wait(LONGEST_SECONDS)
                    # A switch that woke up in a session which the push has closed would do no more.
                    return None if is_run and not waits else Drop()
                case "unplug":
                    threading.Thread(target=box.server.stop).start()
                    self._lifting.append(lambda: self._plug_in(box))
                    return Drop()
                case _:
                    return SIMPLE[kind]

        trouble.act = act

    def _plug_in(self, box: Box) -> None:
        self._wait(lambda: box.server.is_stopped)
        box.server.start()

    def _swap(self, box: Box) -> None:
        """Another box at the switch's address; no fault where its platform does not say its name."""
        if box.target.identify is None:
            return
        original, platform = box.server.device, box.target.platform
        stranger = self._switch("elsewhere", platform)
        before, box.server.device = snapshot(stranger, platform), stranger

        def back() -> None:
            self._silent(box)
            box.server.device = original
            if snapshot(stranger, platform) != before:
                self._violated("wrong_box_accepted", box.name)

        self._lifting.append(back)

    def _kill(self) -> None:
        if self._pid and not self._lifted.is_set():
            os.kill(self._pid, signal.SIGKILL)

    def _kill_after_journal(self, lines: int) -> None:
        while not self._lifted.is_set():
            journal = self._journal()
            if journal is not None and journal.is_file() and journal.read_bytes().count(b"\n") >= lines:
                self._kill()
                return
            time.sleep(0.001)

    def _command(self, *words: str, state: str = "state") -> Ended:
        output = self._folder / f"output-{len(self.commands)}-{state}"
        environment = {"MLTSWITCH_STATE": str(self._folder / state)}
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=_mltswitch, args=(words, environment, str(output)), daemon=True)
        with _starting:
            process.start()
        self._pid = process.pid or 0
        has_ended = wait([process.sentinel], LONGEST_SECONDS)
        self._pid = 0
        if not has_ended:
            process.kill()
            self._violated("human_needed", f"{words[0]} has not ended after {LONGEST_SECONDS:g} s")
            wait([process.sentinel])
        with _starting:
            process.join()
        text = output.read_text(encoding="utf-8", errors="replace") if output.is_file() else ""
        ended = Ended(words, process.exitcode, text)
        self.commands.append(ended)
        if "Traceback" in text or "a bug in mltswitch" in text:
            self._violated("human_needed", f"{words[0]} ended by a bug")
        return ended

    def _journal(self, state: str = "state") -> Path | None:
        folder = self._folder / state / "changes"
        changes = [path for path in folder.glob("*") if (path / "change.json").is_file()]
        return changes[0] / "journal.jsonl" if changes else None

    def _states(self, folder: str = "state") -> dict[str, State]:
        states = dict.fromkeys((box.name for box in self.boxes), State.PLANNED)
        path = self._journal(folder)
        if path is not None and path.is_file():
            for line in path.read_bytes().split(b"\n")[:-1]:
                entry = Entry.model_validate_json(line)
                states[entry.device] = entry.state
        return states

    def _compare(self, *, is_final: bool) -> None:
        """Each switch with its state in the journal; at the end, none may be open."""
        states = self._states()
        ends: set[str] = set()
        for box in self.boxes:
            state, now = states[box.name], box.now()
            runs = "old" if now == box.old else "new" if now == box.new else "neither"
            if now == box.new and SETTLED.get(state) == "new":
                runs = "new"  # the old and the new one may be the same
            self.details.append(f"{box.name} ({box.target.platform}): {state}, runs the {runs} one")
            if box.old != box.new:
                ends.add(runs)
            if is_final and state in OPEN:
                self._violated("human_needed", f"{box.name} is {state}")
            if is_final and runs == "neither":
                self._violated("devices_half_configured", self._difference(box, now))
            elif state in SETTLED and runs != SETTLED[state] and box.old != box.new:
                self._violated("journal_disagreements", f"{self._difference(box, now)}: {state}, runs {runs}")
        if is_final and self.is_atomic and len(ends) > 1:
            self._violated("atomic_mixed", str(states))

    @staticmethod
    def _difference(box: Box, now: tuple[str, str]) -> str:
        text = box.name
        for name, other in (("old", box.old), ("new", box.new)):
            for place, ours, theirs in zip(("running", "saved"), now, other, strict=True):
                lines = list(unified_diff(theirs.splitlines(), ours.splitlines(), lineterm="", n=1))[2:]
                text += f"\n  {place} one against the {name} one: {len(lines)} lines differ"
                text += "".join(f"\n    {line}" for line in lines[:SHOWN_LINES])
        return text

    def _check_status(self, status: Ended) -> None:
        if status.code not in {0, 4, 5}:
            self._violated("human_needed", f"status ended with {status.code}")
            return
        begin = status.output.find("{")
        for report in json.JSONDecoder().raw_decode(status.output, begin)[0]["devices"]:
            [box] = [box for box in self.boxes if box.name == report["device"]]
            said = {"runs-the-plan": box.new, "runs-what-ran-before": box.old}.get(report["status"])
            now = _unmarked(box.now()[0])
            if said is not None and said[0] != now:
                self._violated("journal_disagreements", f"{box.name}: status says {report['status']}")
            on_record = {"old": box.old, "new": box.new}.get(SETTLED.get(self._states()[box.name], ""))
            if status.code == 0 and on_record is not None and on_record[0] != now:
                self._violated("record_contradicts_device", f"{box.name}: {self._states()[box.name]}")

    def _violated(self, what: str, detail: str) -> None:
        self.violations[what] += 1
        self.details.append(f"VIOLATED {what}: {detail}")

    def _silent(self, box: Box) -> None:
        """Wait until its last connection has ended."""
        self._wait(lambda: box.server.connection_count == 0)

    @staticmethod
    def _wait(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.005)

    def __str__(self) -> str:
        head = f"=== {self.name}: {self.kind}, push {' '.join(self.options)}"
        return "\n".join((head, *self.details, *map(str, self.commands)))


def _unmarked(text: str) -> str:
    """What a switch runs, without the mark of an unfinished change, which is no part of either."""
    return "\n".join(line for line in text.splitlines() if not _MARK.search(line))


def _mltswitch(words: tuple[str, ...], environment: Mapping[str, str], output: str) -> None:
    """The command, in a process of its own."""
    from mltswitch.__main__ import main as command  # noqa: PLC0415 (in the forked process alone)

    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number in (1, 2):
        os.dup2(file, number)
    sys.argv = ["mltswitch", *words]
    with ExitStack() as stack:
        stack.enter_context(patch("mltswitch.inventory.load.ansible_program", return_value=None))
        for name, value in SCALED.items():
            stack.enter_context(patch(name, value))
        command()


def campaign(seed: int, first: int, runs: int) -> dict[str, float]:
    """So many runs, some at once; what is violated goes to standard error."""
    multiprocessing.get_context("forkserver").set_forkserver_preload([*_PRELOADED])
    found: Counter[str] = Counter(dict.fromkeys(("runs", "devices", *VIOLATIONS), 0))

    def work(number: int) -> None:
        with tempfile.TemporaryDirectory(prefix="mltswitch-push-faults-") as name:
            run = Run(seed, number, Path(name) / "run")
            try:
                run.carry_out()
            except Exception:  # noqa: BLE001  (a bug of the benchmark must not pass for a run that went well)
                run.details.append(traceback.format_exc())
                run.violations["human_needed"] += 1
        found.update({f"missed_{kind}": number for kind, number in run.missed.items()})
        found.update({"runs": 1, "devices": len(run.boxes), f"runs_{run.kind}": 1, **run.violations})
        if run.violations:
            print(run, file=sys.stderr, flush=True)

    started = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(work, range(first, first + runs)))
    return {**found, "seconds": time.perf_counter() - started}


@click.command()
@click.option("--quick", is_flag=True, help="20 runs.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--runs", default=RUNS, show_default=True, type=click.IntRange(1), help="How many.")
@click.option("--seed", default=0, show_default=True, help="Other runs.")
@click.option(
    "--first", default=0, show_default=True, type=click.IntRange(0), help="Number of the first run."
)
def main(quick: bool, as_json: bool, runs: int, seed: int, first: int) -> None:
    """Disturb pushes, let the operator finish them, and print the figures."""
    found = campaign(seed, first, QUICK_RUNS if quick else runs)
    print_figures(found, as_json=as_json)
    if any(found[name] for name in VIOLATIONS):
        sys.exit(1)


if __name__ == "__main__":
    main()
