"""The whole road once: a model, a plan, a push, a check, and real queues that drop in the right order.

Runs the same commands that a user would type, prints each of them, and sums up what was seen.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROFILE = "resnet50"
INVENTORY = "inventories/lab"
FABRIC = f"{INVENTORY}/fabric.yaml"
OUTPUT = Path("demo-output")
PLAN = OUTPUT / "plan.yaml"
MLTSWITCH = [sys.executable, "-m", "mltswitch"]


class StepFailedError(Exception):
    """A command ended otherwise than the demo needs."""


def say(text: str = "") -> None:
    """Print a line at once, so that it stands before what a command prints."""
    print(text, flush=True)


def mltswitch(*arguments: str, expect: int = 0, quiet: bool = False) -> str:
    """Run one command, show it and what it prints, return its standard output."""
    say(f"\n$ mltswitch {shlex.join(arguments)}")
    process = subprocess.Popen([*MLTSWITCH, *arguments], stdout=subprocess.PIPE, text=True)
    lines = []
    for line in process.stdout or ():
        lines.append(line)
        if not quiet:
            say(line.rstrip("\n"))
    if process.wait() != expect:
        raise StepFailedError(
            f"`mltswitch {shlex.join(arguments)}` ended with {process.returncode}, not {expect}"
        )
    return "".join(lines)


def in_lab(*arguments: str, expect: int = 0, quiet: bool = False) -> str:
    """A command that talks to the lab; without root it must run inside the lab's own kernel."""
    if os.geteuid() == 0:
        return mltswitch(*arguments, expect=expect, quiet=quiet)
    return mltswitch("lab", "run", "-i", INVENTORY, "--", *MLTSWITCH, *arguments, expect=expect, quiet=quiet)


def main() -> int:
    """Run all steps; the lab is taken down whatever happens."""
    started = time.monotonic()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    try:
        summary = steps()
    except StepFailedError as failure:
        say(f"\ndemo: {failure}")
        return 1
    finally:
        mltswitch("lab", "down", "-i", INVENTORY)
    say("\n" + "=" * 100)
    say(f"What you saw, in {time.monotonic() - started:.0f} seconds:\n")
    for line in summary:
        say(f"  - {line}")
    say(f"\nLook at {PLAN} and {OUTPUT}/configs/, and see README.md for your own model and fabric.")
    return 0


def steps() -> list[str]:
    """Every step in order; returns the lines of the summary."""
    say("== 1. Models: layers, bytes, and how much loss they bear")
    mltswitch("profile", "list")
    say(f"\n== 2. A plan for {PROFILE}: thresholds from the loss model")
    mltswitch("plan", "--profile", PROFILE, "--fabric", FABRIC, "-o", str(PLAN))
    plan = json.loads(mltswitch("plan", "--profile", PROFILE, "--fabric", FABRIC, "--json", quiet=True))
    say("\n== 3. The plan in the language of every switch")
    mltswitch("render", str(PLAN), "-i", INVENTORY, "-o", str(OUTPUT / "configs"))
    say("\n== 4. A lab: real Linux queues, emulated Onyx and SONiC command lines, SSH to all of them")
    mltswitch("lab", "up", "-i", INVENTORY, "--fabric", FABRIC)
    say("\n== 5. Push; push again, which finds nothing to do; verify")
    say("(Onyx and SONiC rewrite no DSCP of their hosts, and the SONiC has PFC: a push has to accept both)")
    in_lab("push", str(PLAN), "-i", INVENTORY, "--accept", "--yes")
    second = json.loads(
        in_lab("push", str(PLAN), "-i", INVENTORY, "--accept-leak", "--yes", "--json", quiet=True)
    )
    say(f"changed by the second push: {second['summary']['changed']} of {len(second['devices'])} devices")
    in_lab("verify", str(PLAN), "-i", INVENTORY)
    found = somebody_changes_a_threshold(plan)
    say("\n== 7. The proof: tagged packets through one overloaded port")
    in_lab("lab", "probe", str(PLAN), "-i", INVENTORY, "-o", str(OUTPUT / "probe.json"))
    probe = json.loads((OUTPUT / "probe.json").read_text())
    return summarise(plan, second, found, probe)


def somebody_changes_a_threshold(plan: dict[str, Any]) -> str:
    """Change one queue of leaf2 behind the tool's back; returns what `verify` says of it."""
    say("\n== 6. Somebody changes a threshold by hand; verify names it, a push mends it")
    gradients = [number for number, entry in enumerate(plan["classes"], 1) if entry["kind"] == "gradient"]
    place = f"parent 30:{len(gradients):x} handle 1{gradients[-1]:02x}:"
    red = "red limit 200000 min 30280 max 30280 avpkt 1000 burst 31 bandwidth 10gbit probability 1 ecn"
    command = f"tc qdisc change dev eth2 {place} {red}"
    ssh = ["ssh", "-i", f"{INVENTORY}/.lab/keys/id_ed25519", "-p", "2222", "-o", "BatchMode=yes"]
    ssh += ["-o", f"UserKnownHostsFile={INVENTORY}/.lab/known_hosts", "root@127.77.0.12", command]
    say(f"\n$ {shlex.join(ssh)}")
    where = [] if os.geteuid() == 0 else [*MLTSWITCH, "lab", "run", "-i", INVENTORY, "--"]
    if subprocess.run([*where, *ssh], check=False).returncode:
        raise StepFailedError("the change by hand was refused")
    report = json.loads(in_lab("verify", str(PLAN), "-i", INVENTORY, "--json", expect=5, quiet=True))
    differences = [entry for device in report["devices"] for entry in device["differences"]]
    for entry in differences:
        say(
            f"{entry['device']}, port {entry['port']}, queue {entry['queue']} ({entry['traffic_class']}): "
            f"{entry['field']} expected {entry['expected']}, found {entry['found']}"
        )
    in_lab("push", str(PLAN), "-i", INVENTORY, "--accept-leak", "--yes")
    return f"{len(differences)} wrong values, on {', '.join({entry['device'] for entry in differences})}"


def summarise(plan: dict[str, Any], second: dict[str, Any], found: str, probe: dict[str, Any]) -> list[str]:
    """The figures a newcomer should keep."""
    gradients = [entry for entry in plan["classes"] if entry["kind"] == "gradient"]
    layers = gradients[-1]["layers"]["last"] + 1
    size_megabytes = sum(entry["layers"]["size_bytes"] for entry in gradients) / 1e6
    verdicts = probe["verdicts"]
    lines = [
        f"{PROFILE}: {layers} layers, {size_megabytes:.1f} MB of gradients per round, spread over "
        f"{len(gradients)} priority classes, front layers first",
        f"{len(second['devices'])} switches configured over SSH; a second push changed "
        f"{second['summary']['changed']} of them",
        f"a threshold changed by hand: verify found {found}",
    ]
    lines += [
        f"{load['load']:g} times the port rate offered: {_losses(load, gradients)}"
        for load in probe["result"]["loads"]
    ]
    judged = [verdict for verdict in verdicts if verdict["holds"] is not None]
    held = sum(verdict["holds"] for verdict in judged)
    lines.append(
        f"{held} of {len(judged)} promises of the plan held on the wire; "
        f"{len(verdicts) - len(judged)} more could not be told from outside (all listed above)"
    )
    return lines


def _losses(load: dict[str, Any], gradients: list[dict[str, Any]]) -> str:
    parts = []
    for name in ("control", gradients[0]["name"], gradients[-1]["name"]):
        rows = [row for row in load["classes"] if row["traffic_class"] == name]
        for row in rows:
            kind = "" if name == "control" else (" important" if row["is_important"] else " unimportant")
            parts.append(f"{name}{kind} lost {100 * row['lost'] / max(1, row['sent']):.2f} %")
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
