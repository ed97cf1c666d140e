"""The commands that take a SONiC switch to the plan: a checkpoint, then patches, each all or nothing."""

import json
from typing import Final

from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.sonic.database import Database
from mltswitch.targets.sonic.merge import QUEUE_TABLES, merged
from mltswitch.targets.sonic.patch import Operation, patches_between
from mltswitch.targets.sonic.read import running_database
from mltswitch.targets.state import SwitchState

PATCH_FILE: Final = "/tmp/mltswitch-patch.json"  # noqa: S108 (a path on the switch; its kernel protects /tmp)
CHECKPOINT: Final = "mltswitch"
"""State before the last change: `sudo config rollback mltswitch` returns to it."""
SAVE: Final = (Step("sudo config save -y"),)
_PORT_TABLES: Final = (*QUEUE_TABLES, "PORT_QOS_MAP")


def change_between(running: RunningState, wanted: SwitchState) -> Change:
    """Patch of our objects alone; raises DeviceError where the device lacks a port or the buffer pool."""
    before = running_database(running.answers)
    after = merged(before, wanted)
    patches = patches_between(before, after)
    if not patches:
        return Change(())
    steps = [Step(f"sudo config checkpoint {CHECKPOINT}")]
    for patch in patches:
        steps.append(Step(f"tee {PATCH_FILE} > /dev/null", json.dumps(patch)))
        steps.append(Step(f"sudo config apply-patch {PATCH_FILE}"))
    steps.append(Step(f"rm -f {PATCH_FILE}"))
    operations = [operation for patch in patches for operation in patch]
    return Change(tuple(steps), SAVE, _text(operations, _ports_taken_down(before, after, wanted)))


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


def _text(operations: list[Operation], ports: list[str]) -> str:
    lines = [json.dumps(operation) for operation in operations]
    if ports:
        lines.insert(0, f"# the switch takes down for a moment: {', '.join(ports)}")
    return "\n".join(lines) + "\n"
