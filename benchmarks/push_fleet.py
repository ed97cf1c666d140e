"""How long `mltswitch push` takes for a thousand switches, and what ansible-playbook takes for a hundred.

    python -m benchmarks.push_fleet [--quick] [--json]

The switches are the lab's emulators, the six platforms in turn, fresh from the factory, each with its own
host key and four ports in the plan; all of a phase stand in one process, which shares the processors with the
pusher. The pusher is the command as one runs it, with a known hosts file and a journal. Afterwards
`mltswitch verify` must find the plan on every switch, else there are no figures.

Ansible gets switches with a shell, SONiC and Cumulus Linux in turn, without their vendors' collections, and
changes them twice, fresh each time. First by the playbook of `mltswitch export ansible`, which does most of
what a push does: it reads, changes what differs, reads back, and saves. Then by the least that can be
written: one `raw` task with the lines of the change, joined by `&&`, and one that saves. Neither asks who
answers, nor keeps a journal. Its forks are our `--concurrency`, its SSH options (ControlPersist) the default
ones. mltswitch pushes to the same switches, fresh again, in the same run.

    devices, seconds, failures     the push, from the start of the command to its end
    cpu_seconds                    of the pusher: what is missing to twice the seconds is the emulators' work
    peak_mb                        of the pusher, resident
    emulator_mb                    what one idle emulated switch costs the process that serves it
    plan_seconds                   to build the plan and the fabric, before the push
    compared_devices               that both changed
    compared_seconds               mltswitch, these
    compared_cpu_seconds           of that, the pusher's own work
    ansible_seconds                ansible-playbook with the exported playbook, these
    ratio_to_ansible               ansible_seconds over compared_seconds: above 1, mltswitch is faster
    ansible_lines_seconds          ansible-playbook with the two tasks, these
    ratio_to_ansible_lines         the same with them
"""

import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Final

import click
import yaml

from benchmarks.ansible_template import ansible_playbook
from benchmarks.emulated import PORTS, Rack, Ran, run
from benchmarks.figures import print_figures
from benchmarks.fleet import one_plan
from mltswitch.inventory import Device
from mltswitch.plan import Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import Step, hardware_capabilities, target_for
from switchsim import KINDS, CumulusDevice, SonicDevice

DEVICES: Final = 1000
COMPARED: Final = 100
QUICK_DEVICES: Final = 50
QUICK_COMPARED: Final = 10
CONCURRENCY: Final = 20
"""What `mltswitch push` does without being told."""
PUSH: Final = ("--accept", "--yes", "--concurrency", str(CONCURRENCY))
PLAN_PORTS: Final = 4
SPINES: Final = 2
SHELLS: Final = ("cumulus", "sonic")


class Site:
    """A plan, the switches of its fabric, and who changes them."""

    def __init__(self, folder: Path, devices: int, platforms: tuple[str, ...]) -> None:
        started = perf_counter()
        drawn, self.leaves = one_plan(devices, platforms, ports=PLAN_PORTS, spines=SPINES)
        self.plan = build_plan(resolve_profile("resnet50"), drawn.fabric, hardware_capabilities, "paper")
        self.plan_seconds = perf_counter() - started
        self.rack = Rack(folder, self.leaves)
        self._file = folder / "plan.json"
        self._file.write_text(self.plan.model_dump_json(by_alias=True), encoding="utf-8")

    def mltswitch(self, *command: str, options: tuple[str, ...] = ("--concurrency", str(CONCURRENCY))) -> Ran:
        """One command about the plan, with a state directory that lasts as long as the site."""
        program = (sys.executable, "-m", "mltswitch", *command, str(self._file))
        environment = os.environ | {"MLTSWITCH_STATE": str(self.rack.folder / "state")}
        words = (*program, "-i", str(self.rack.inventory), *options, "--json")
        return run(words, environment, self.rack.folder)

    def verified(self) -> None:
        """Raise RuntimeError where a switch does not run the plan."""
        verify = self.mltswitch("verify")
        if verify.code or json.loads(verify.output)["summary"]["ok"] != len(self.leaves):
            raise RuntimeError(f"the switches do not run the plan: {verify.errors}{verify.output[:2000]}")


def measure(folder: Path, devices: int) -> dict[str, float]:
    """One push to all of them."""
    site = Site(folder, devices, tuple(KINDS))
    with site.rack.served() as emulator_mb:
        push = site.mltswitch("push", options=PUSH)
        if push.code:
            print(push.errors, push.output[:2000], file=sys.stderr)
        else:
            site.verified()
    summary = json.loads(push.output)["summary"]
    return {
        "devices": float(devices),
        "seconds": push.seconds,
        "cpu_seconds": push.cpu_seconds,
        "peak_mb": push.peak_mb,
        "failures": float(devices - summary["changed"]),
        "emulator_mb": emulator_mb,
        "plan_seconds": site.plan_seconds,
    }


def compare(folder: Path, devices: int, program: str) -> dict[str, float]:
    """Ansible, then mltswitch, with the same switches as they come from the factory."""
    site = Site(folder, devices, SHELLS)
    (folder / "playbook.yaml").write_text(yaml.safe_dump([_play()]), encoding="utf-8")
    lines = {leaf.name: _commands(site.plan, leaf) for leaf in site.leaves}
    (folder / "lines.yaml").write_text(yaml.safe_dump({"all": {"hosts": lines}}), encoding="utf-8")
    environment = os.environ | {"ANSIBLE_HOME": str(folder / "home"), "LC_ALL": "C.UTF-8"}

    def played(*words: str) -> Ran:
        ran = run((program, "-f", str(CONCURRENCY), *words), environment, folder)
        if ran.code:
            raise RuntimeError(f"ansible-playbook failed: {ran.errors}{ran.output[-2000:]}")
        site.verified()
        return ran

    with site.rack.served():
        exported = site.mltswitch("export", "ansible", options=("-o", str(folder / "exported")))
        if exported.code:
            raise RuntimeError(f"nothing was exported: {exported.errors}")
        ansible = played("-i", "exported/inventory.yaml", "exported/playbook.yaml")
    with site.rack.served():
        ansible_lines = played("-i", str(site.rack.inventory), "-i", "lines.yaml", "playbook.yaml")
    with site.rack.served():
        push = site.mltswitch("push", options=PUSH)
        site.verified()
    return {
        "compared_devices": float(devices),
        "compared_seconds": push.seconds,
        "compared_cpu_seconds": push.cpu_seconds,
        "ansible_seconds": ansible.seconds,
        "ansible_cpu_seconds": ansible.cpu_seconds,
        "ratio_to_ansible": ansible.seconds / push.seconds,
        "ansible_lines_seconds": ansible_lines.seconds,
        "ratio_to_ansible_lines": ansible_lines.seconds / push.seconds,
    }


def _play() -> dict[str, object]:
    tasks = [{"ansible.builtin.raw": f"{{{{ {name} }}}}"} for name in ("change", "save")]
    return {"hosts": "all", "gather_facts": False, "tasks": tasks}


def _commands(plan: Plan, leaf: Device) -> dict[str, str]:
    """What a push sends to such a switch, as a shell takes it at once; the save apart."""
    target = target_for(leaf.platform)
    fitted = target.fit_to_hardware(plan, leaf.switch)
    switch = {"cumulus": CumulusDevice, "sonic": SonicDevice}[leaf.platform](leaf.name, PORTS)
    answers = {
        query: switch.execute("admin", query).stdout.decode() for query in target.queries(fitted.state)
    }
    running = target.read(answers, fitted.state, fitted.capabilities)
    change = target.diff(running, fitted.state, fitted.capabilities)
    return {"change": _joined(change.steps), "save": _joined(change.save)}


def _joined(steps: tuple[Step, ...]) -> str:
    return " && ".join(
        f"echo {shlex.quote(step.stdin)} | {step.command.removeprefix('cat | ')}"
        if step.stdin
        else step.command
        for step in steps
    )


@click.command()
@click.option("--quick", is_flag=True, help="50 switches, 10 for Ansible.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Push to the fleet, then beside Ansible, and print the figures."""
    program = ansible_playbook()
    with tempfile.TemporaryDirectory(prefix="mltswitch-push-fleet-") as name:
        found = measure(Path(name) / "fleet", QUICK_DEVICES if quick else DEVICES)
        if program is None:
            print("no ratio, ansible-playbook is not installed: pip install ansible-core", file=sys.stderr)
        else:
            found |= compare(Path(name) / "compared", QUICK_COMPARED if quick else COMPARED, program)
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
