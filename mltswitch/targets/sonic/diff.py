"""The commands that take a SONiC switch to the plan: a checkpoint, then patches, each all or nothing."""

import hashlib
import json
from typing import Final

from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.sonic.database import Database
from mltswitch.targets.sonic.merge import QUEUE_TABLES, merged
from mltswitch.targets.sonic.patch import Operation, patches_between
from mltswitch.targets.sonic.read import running_database
from mltswitch.targets.state import SwitchState

APPLY: Final = "cat | sudo config apply-patch /dev/stdin"
"""`cat` because sshd may give a command a socket as standard input, and a socket cannot be opened by name."""
APPLY_SECONDS: Final = 900.0
"""The updater finds an order of small steps, and waits for services between them."""
SAVE: Final = (Step("sudo config save -y"),)
_PORT_TABLES: Final = (*QUEUE_TABLES, "PORT_QOS_MAP")


def change_between(running: RunningState, wanted: SwitchState) -> Change:
    """Patch of our objects alone; raises DeviceError where the device lacks a port or the buffer pool."""
    before = running_database(running.answers)
    after = merged(before, wanted)
    patches = patches_between(before, after)
    if not patches:
        return Change((), SAVE)
    checkpoint = checkpoint_of(before)
    steps = [Step(f"sudo config checkpoint {checkpoint}")]
    steps += [Step(APPLY, json.dumps(patch), APPLY_SECONDS) for patch in patches]
    operations = [operation for patch in patches for operation in patch]
    text = _text(operations, _ports_taken_down(before, after, wanted), checkpoint)
    return Change(tuple(steps), SAVE, text)


def checkpoint_of(database: Database) -> str:
    """Name of a configuration's checkpoint, which that of no other configuration overwrites."""
    contents = json.dumps(database, sort_keys=True).encode()
    return f"mltswitch-{hashlib.sha256(contents).hexdigest()[:8]}"


def _ports_taken_down(before: Database, after: Database, wanted: SwitchState) -> list[str]:
    """Ports whose queues or maps change: the updater sets them down meanwhile (patch_sorter.py)."""
    changed = {
        name
        for table in _PORT_TABLES
        for key in before.get(table, {}).keys() | after.get(table, {}).keys()
        if before.get(table, {}).get(key) != after.get(table, {}).get(key)
        for name in key.partition("|")[0].split(",")
    }
    return [port.name for port in wanted.ports if port.name in changed]


def _text(operations: list[Operation], ports: list[str], checkpoint: str) -> str:
    lines = [f"# back to the state before: sudo config rollback {checkpoint}"]
    lines += [json.dumps(operation) for operation in operations]
    if ports:
        lines.insert(0, f"# the switch takes down for a moment: {', '.join(ports)}")
    return "\n".join(lines) + "\n"
