"""The configurations that orchagent and the chip's SAI refuse although the YANG models accept them.

Source: sonic-swss (orchagent/qosorch.cpp, bufferorch.cpp), and for Mellanox's chips mlnx_sai_wred.c and
mlnx_sai_scheduler.c; Broadcom's SAI is closed, and nothing of it is emulated. The switch itself
takes such an entry into CONFIG_DB, logs an error and does not program it; the emulator is stricter and lets
the command fail, with texts of its own.
"""

import re
from collections.abc import Iterator
from typing import Final

from switchsim.sonic_yang import COLOURS, SHAPES, Database, Entry, FieldValue

QUEUES: Final = 8
_QUEUES: Final = tuple(str(queue) for queue in range(QUEUES))
MAX_THRESHOLD_BYTES: Final = (1 << 31) - 1
"""The largest threshold of a WRED profile in bytes, because orchagent reads it with std::stoi."""

LEAST_CAP_BYTES: Final = 200_000_000 // 8

_WRED_FIELDS: Final = frozenset(SHAPES["WRED_PROFILE"][0].fields)
_SCHEDULER_FIELDS: Final = frozenset(SHAPES["SCHEDULER"][0].fields) - {"priority"}


def is_mellanox(database: Database) -> bool:
    """Whether the switch has a chip of Mellanox; all others have one of Broadcom."""
    return "mlnx" in str(database.get("DEVICE_METADATA", {}).get("localhost", {}).get("platform", ""))


def refusals(old: Database, new: Database) -> Iterator[str]:
    """Why orchagent would not program entries that differ between two databases; empty if it programs all."""
    for table, entries in new.items():
        for key, fields in entries.items():
            before = old.get(table, {}).get(key)
            if fields != before:
                for problem in _entry_refusals(table, fields, before, has_mellanox=is_mellanox(new)):
                    yield f"orchagent refuses {table}|{key}: {problem} [emulator]"


def _entry_refusals(table: str, fields: Entry, before: Entry | None, *, has_mellanox: bool) -> Iterator[str]:
    match table:
        case "TC_TO_QUEUE_MAP":
            wrong = (queue for queue in fields.values() if queue not in _QUEUES)
            yield from (f"queue {queue} is outside 0-{QUEUES - 1}" for queue in wrong)
        case "SCHEDULER":
            yield from (f"unknown field {name}" for name in sorted(fields.keys() - _SCHEDULER_FIELDS))
            yield from _mellanox_scheduler(fields) if has_mellanox else ()
        case "WRED_PROFILE":
            yield from _wred(fields)
            yield from _mellanox_wred(fields) if has_mellanox else ()
        case "BUFFER_POOL" if before is not None:
            changed = (name for name in ("type", "mode") if fields.get(name) != before.get(name))
            yield from (f"{name} of a pool cannot be changed" for name in changed)
        case "BUFFER_PROFILE" if before is not None:
            if fields.get("pool") != before.get("pool"):
                yield "pool of a live profile cannot be changed"
            if ("dynamic_th" in fields) != ("dynamic_th" in before):
                yield "threshold mode of a live profile cannot be changed"


def _mellanox_scheduler(fields: Entry) -> Iterator[str]:
    """No WRR, weights for DWRR alone, rates in bytes, the least of a cap 200 Mbit/s."""
    kind, cap = fields.get("type", "WRR"), str(fields.get("pir", "0"))
    if kind == "WRR":
        yield "type WRR is not supported"
    if kind == "STRICT" and "weight" in fields:
        yield "weight requires DWRR"
    if fields.get("meter_type", "bytes") != "bytes":
        yield "only bytes/s meter type is supported"
    if {"cbs", "pbs"} & fields.keys():
        yield "burst sizes are not supported"
    if not re.fullmatch("[0-9]{1,20}", cap):
        yield f"pir {cap} is no number"
    elif 0 < int(cap) < LEAST_CAP_BYTES:
        yield "pir is below 200 Mbit/s and would be taken for 0"


def _wred(fields: Entry) -> Iterator[str]:
    for name in sorted(fields.keys() - _WRED_FIELDS):
        yield f"unknown field {name}, the whole profile is rejected"
    for name, value in fields.items():
        if name.endswith("_enable") and value not in ("true", "false"):
            yield f"{name} is {value}, not true or false"
        if name.endswith("_threshold") and _threshold(value) is None:
            yield f"{name} {value} is outside 0-{MAX_THRESHOLD_BYTES}"
    for colour in COLOURS:
        low, high = _thresholds(fields, colour)
        if low is not None and high is not None and low > high:
            yield f"{colour}_min_threshold is above {colour}_max_threshold"


def _mellanox_wred(fields: Entry) -> Iterator[str]:
    marking = str(fields.get("ecn", "ecn_none"))
    enabled = {colour for colour in COLOURS if fields.get(f"wred_{colour}_enable") == "true"}
    for colour in COLOURS:
        if f"{colour}_drop_probability" in fields and colour not in enabled:
            yield f"{colour}_drop_probability without wred_{colour}_enable"
        is_used = colour in enabled or colour in marking or marking == "ecn_all"
        if is_used and None in _thresholds(fields, colour):
            yield f"{colour} needs both thresholds"
    if marking == "ecn_green" and enabled - {"green"}:
        yield "ecn_green needs yellow and red off"


def _thresholds(fields: Entry, colour: str) -> list[int | None]:
    return [_threshold(fields.get(f"{colour}_{end}_threshold")) for end in ("min", "max")]


def _threshold(value: FieldValue | None) -> int | None:
    if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value) and int(value) <= MAX_THRESHOLD_BYTES:
        return int(value)
    return None
