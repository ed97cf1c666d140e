"""What orchagent and the chip's SAI refuse although the YANG models accept it.

Source: sonic-swss (orchagent/qosorch.cpp, bufferorch.cpp), and for Mellanox's chips mlnx_sai_wred.c and
mlnx_sai_scheduler.c; Broadcom's SAI is closed, and nothing of it is emulated. The switch itself
takes such an entry into CONFIG_DB, logs an error and does not program it; the emulator is stricter and lets
the command fail, with texts that are all ours.
"""

import re
from collections.abc import Iterator
from typing import Final

from switchsim.sonic_yang import SHAPES, Database, Entry

QUEUES: Final = 8
MAX_THRESHOLD_BYTES: Final = (1 << 31) - 1
"""Thresholds pass through std::stoi."""

LEAST_CAP_BYTES: Final = 200_000_000 // 8

_COLOURS: Final = ("green", "yellow", "red")
_WRED_FIELDS: Final = frozenset(SHAPES["WRED_PROFILE"][0].fields)
_SCHEDULER_FIELDS: Final = frozenset(SHAPES["SCHEDULER"][0].fields) - {"priority"}


def refusals(old: Database, new: Database) -> Iterator[str]:
    """What would not be programmed, among the entries that differ; empty where everything is."""
    is_mellanox = "mlnx" in str(new.get("DEVICE_METADATA", {}).get("localhost", {}).get("platform", ""))
    for table, entries in new.items():
        for key, fields in entries.items():
            before = old.get(table, {}).get(key)
            if fields == before:
                continue
            for problem in _entry_refusals(table, fields, before, is_mellanox=is_mellanox):
                yield f"orchagent refuses {table}|{key}: {problem} [emulator]"


def _entry_refusals(table: str, fields: Entry, before: Entry | None, *, is_mellanox: bool) -> Iterator[str]:
    if table == "TC_TO_QUEUE_MAP":
        for queue in fields.values():
            if not (isinstance(queue, str) and re.fullmatch("[0-9]", queue) and int(queue) < QUEUES):
                yield f"queue {queue} is outside 0-{QUEUES - 1}"
    elif table == "SCHEDULER":
        yield from _scheduler_refusals(fields, is_mellanox=is_mellanox)
    elif table == "WRED_PROFILE":
        yield from _wred_refusals(fields, is_mellanox=is_mellanox)
    elif table == "BUFFER_POOL" and before is not None:
        for name in ("type", "mode"):
            if fields.get(name) != before.get(name):
                yield f"{name} of a pool cannot be changed"
    elif table == "BUFFER_PROFILE" and before is not None:
        if fields.get("pool") != before.get("pool"):
            yield "pool of a live profile cannot be changed"
        if ("dynamic_th" in fields) != ("dynamic_th" in before):
            yield "threshold mode of a live profile cannot be changed"


def _scheduler_refusals(fields: Entry, *, is_mellanox: bool) -> Iterator[str]:
    """Mellanox's SAI: no WRR, weights for DWRR alone, rates in bytes, the least of a cap 200 Mbit/s."""
    for name in sorted(fields.keys() - _SCHEDULER_FIELDS):
        yield f"unknown field {name}"
    if not is_mellanox:
        return
    kind = fields.get("type", "WRR")
    if kind == "WRR":
        yield "type WRR is not supported"
    if kind == "STRICT" and "weight" in fields:
        yield "weight requires DWRR"
    if fields.get("meter_type", "bytes") != "bytes":
        yield "only bytes/s meter type is supported"
    if {"cbs", "pbs"} & fields.keys():
        yield "burst sizes are not supported"
    cap = str(fields.get("pir", "0"))
    if not re.fullmatch("[0-9]{1,20}", cap):
        yield f"pir {cap} is no number"
    elif 0 < int(cap) < LEAST_CAP_BYTES:
        yield "pir is below 200 Mbit/s and would be taken for 0"


def _wred_refusals(fields: Entry, *, is_mellanox: bool) -> Iterator[str]:
    for name in sorted(fields.keys() - _WRED_FIELDS):
        yield f"unknown field {name}, the whole profile is rejected"
    for name, value in fields.items():
        if name.endswith("_enable") and value not in {"true", "false"}:
            yield f"{name} is {value}, not true or false"
        if name.endswith("_threshold") and _threshold(fields, name) is None:
            yield f"{name} {value} is outside 0-{MAX_THRESHOLD_BYTES}"
    for colour in _COLOURS:
        low, high = (_threshold(fields, f"{colour}_{end}_threshold") for end in ("min", "max"))
        if low is not None and high is not None and low > high:
            yield f"{colour}_min_threshold is above {colour}_max_threshold"
    if not is_mellanox:
        return
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


def _threshold(fields: Entry, name: str) -> int | None:
    value = fields.get(name)
    if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value) and int(value) <= MAX_THRESHOLD_BYTES:
        return int(value)
    return None
