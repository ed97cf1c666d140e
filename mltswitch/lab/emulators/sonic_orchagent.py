"""What orchagent and the Mellanox SAI refuse although the YANG models accept it.

Source: sonic-swss (orchagent/qosorch.cpp, bufferorch.cpp) and Mellanox's mlnx_sai_wred.c. The switch itself
takes such an entry into CONFIG_DB, logs an error and does not program it; the emulator is stricter and lets
the command fail, with texts that are all ours.
"""

import re
from collections.abc import Iterator
from typing import Final

from mltswitch.lab.emulators.sonic_yang import SHAPES, Database, Entry

QUEUES: Final = 8
MAX_THRESHOLD_BYTES: Final = (1 << 31) - 1
"""Thresholds pass through std::stoi."""

_COLOURS: Final = ("green", "yellow", "red")
_WRED_FIELDS: Final = frozenset(SHAPES["WRED_PROFILE"][0].fields)
_SCHEDULER_FIELDS: Final = frozenset(SHAPES["SCHEDULER"][0].fields) - {"priority"}


def refusals(old: Database, new: Database) -> Iterator[str]:
    """What would not be programmed, among the entries that differ; empty where everything is."""
    for table, entries in new.items():
        for key, fields in entries.items():
            before = old.get(table, {}).get(key)
            if fields == before:
                continue
            for problem in _entry_refusals(table, fields, before):
                yield f"orchagent refuses {table}|{key}: {problem} [emulator]"


def _entry_refusals(table: str, fields: Entry, before: Entry | None) -> Iterator[str]:
    if table == "TC_TO_QUEUE_MAP":
        for queue in fields.values():
            if not (isinstance(queue, str) and re.fullmatch("[0-9]", queue) and int(queue) < QUEUES):
                yield f"queue {queue} is outside 0-{QUEUES - 1}"
    elif table == "SCHEDULER":
        for name in sorted(fields.keys() - _SCHEDULER_FIELDS):
            yield f"unknown field {name}"
    elif table == "WRED_PROFILE":
        yield from _wred_refusals(fields)
    elif table == "BUFFER_POOL" and before is not None:
        for name in ("type", "mode"):
            if fields.get(name) != before.get(name):
                yield f"{name} of a pool cannot be changed"
    elif table == "BUFFER_PROFILE" and before is not None:
        if fields.get("pool") != before.get("pool"):
            yield "pool of a live profile cannot be changed"
        if ("dynamic_th" in fields) != ("dynamic_th" in before):
            yield "threshold mode of a live profile cannot be changed"


def _wred_refusals(fields: Entry) -> Iterator[str]:
    for name in sorted(fields.keys() - _WRED_FIELDS):
        yield f"unknown field {name}, the whole profile is rejected"
    for name, value in fields.items():
        if name.endswith("_enable") and value not in {"true", "false"}:
            yield f"{name} is {value}, not true or false"
        if name.endswith("_threshold") and _threshold(fields, name) is None:
            yield f"{name} {value} is outside 0-{MAX_THRESHOLD_BYTES}"
    marking = str(fields.get("ecn", "ecn_none"))
    for colour in _COLOURS:
        yield from _colour_refusals(fields, colour, is_marked=colour in marking or marking == "ecn_all")
    if marking == "ecn_green" and any(
        fields.get(f"wred_{colour}_enable") == "true" for colour in _COLOURS[1:]
    ):
        yield "ecn_green needs yellow and red off"


def _colour_refusals(fields: Entry, colour: str, *, is_marked: bool) -> Iterator[str]:
    is_enabled = fields.get(f"wred_{colour}_enable") == "true"
    if f"{colour}_drop_probability" in fields and not is_enabled:
        yield f"{colour}_drop_probability without wred_{colour}_enable"
    minimum = _threshold(fields, f"{colour}_min_threshold")
    maximum = _threshold(fields, f"{colour}_max_threshold")
    if (is_enabled or is_marked) and None in {minimum, maximum}:
        yield f"{colour} needs both thresholds"
    if minimum is not None and maximum is not None and minimum > maximum:
        yield f"{colour}_min_threshold is above {colour}_max_threshold"


def _threshold(fields: Entry, name: str) -> int | None:
    value = fields.get(name)
    if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value) and int(value) <= MAX_THRESHOLD_BYTES:
        return int(value)
    return None
