"""What SONiC takes into CONFIG_DB and then does not do, so that nobody learns it from a switch's log.

The YANG models let all of this pass. Sources: sonic-swss orchagent/qosorch.cpp, bufferorch.cpp and
orch.cpp, and Mellanox's SAI (mlnx_sai_wred.c, mlnx_sai_scheduler.c), whose rules are the narrower ones.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mltswitch.targets.sonic.capabilities import LARGEST_THRESHOLD_BYTES, TRAFFIC_CLASSES
from mltswitch.targets.sonic.database import QUEUE_TABLES, Database, Entry, QueueKey, Table

COLOURS: Final = ("green", "yellow", "red")
_WRED_FIELDS: Final = frozenset(
    {"ecn"}
    | {f"wred_{colour}_enable" for colour in COLOURS}
    | {f"{colour}_{end}_threshold" for colour in COLOURS for end in ("min", "max")}
    | {f"{colour}_drop_probability" for colour in COLOURS}
)
_SCHEDULER_FIELDS: Final = frozenset({"type", "weight", "meter_type", "cir", "cbs", "pir", "pbs"})
_NO_MODEL: Final = ("SRV6_SID_LIST", "SRV6_POLICY", "SRV6_STEER")
_NUMBER: Final = re.compile("[0-9]{1,19}")
_KEPT_WHEN_REMOVED: Final = ("SCHEDULER", "WRED_PROFILE", "BUFFER_PROFILE")


@dataclass(frozen=True, slots=True)
class Refusal:
    """One object that would not be programmed as it stands."""

    where: str
    problem: str


def refusals(database: Database) -> Iterator[Refusal]:
    """What would not be programmed, in the order of the document; nothing where all of it would."""
    for table in _NO_MODEL:
        if table in database:
            yield Refusal(table, "nothing in SONiC reads this table from CONFIG_DB")
    for table, check in _CHECKS.items():
        for key, fields in database.get(table, {}).items():
            for problem in check(fields, database):
                yield Refusal(f"{table}|{key}", problem)
    for table in QUEUE_TABLES:
        yield from _queue_refusals(table, database.get(table, {}))


def transition_refusals(running: Database, wanted: Database) -> Iterator[Refusal]:
    """Changes of a live object that orchagent ignores, of the objects that `wanted` names.

    It programs what a changed entry says and never takes back what the entry no longer says; a buffer
    profile's pool and kind of threshold, and everything of a pool but its size, are set when it is made.
    """
    for key, fields in wanted.get("BUFFER_POOL", {}).items():
        before = running.get("BUFFER_POOL", {}).get(key)
        for name in ("type", "mode"):
            if before is not None and fields.get(name) != before.get(name):
                yield Refusal(f"BUFFER_POOL|{key}", f"{name} of a live pool cannot be changed")
    for table in _KEPT_WHEN_REMOVED:
        for key, fields in wanted.get(table, {}).items():
            before = running.get(table, {}).get(key)
            if before is None or before == fields:
                continue
            if table == "BUFFER_PROFILE" and before.get("pool") != fields.get("pool"):
                yield Refusal(f"{table}|{key}", "the pool of a live profile cannot be changed")
            for name in sorted(before.keys() - fields.keys()):
                yield Refusal(f"{table}|{key}", f"a live object keeps {name} when it no longer says so")


def number(fields: Entry, name: str) -> int | None:
    """A field as a whole number; None where it is missing or anything else."""
    value = fields.get(name)
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def _wred(fields: Entry, _database: Database) -> Iterator[str]:
    for name in sorted(fields.keys() - _WRED_FIELDS):
        yield f"unknown field {name}: the whole profile is rejected"
    marking = fields.get("ecn", "ecn_none")
    enabled = {colour for colour in COLOURS if fields.get(f"wred_{colour}_enable") == "true"}
    for name, value in fields.items():
        if name.endswith("_enable") and value not in {"true", "false"}:
            yield f"{name} is {value}: neither true nor false"
        if name.endswith("_threshold"):
            threshold = number(fields, name)
            if threshold is None or threshold > LARGEST_THRESHOLD_BYTES:
                yield f"{name} is {value}: outside 0 to {LARGEST_THRESHOLD_BYTES}"
    for colour in COLOURS:
        yield from _colour(fields, colour, is_enabled=colour in enabled, marking=str(marking))
    if marking == "ecn_all" and len(enabled) < len(COLOURS):
        yield "ecn_all needs green, yellow and red on"
    if marking == "ecn_green" and enabled - {"green"}:
        yield "ecn_green needs yellow and red off"


def _colour(fields: Entry, colour: str, *, is_enabled: bool, marking: str) -> Iterator[str]:
    low, high = (number(fields, f"{colour}_{end}_threshold") for end in ("min", "max"))
    is_named = {f"{colour}_min_threshold", f"{colour}_max_threshold"} & fields.keys()
    is_used = is_enabled or colour in marking or marking == "ecn_all"
    if (low is None) != (high is None) or (is_used and not is_named):
        yield f"{colour} needs both thresholds"
    if low is not None and high is not None and low > high:
        yield f"{colour}_min_threshold is above {colour}_max_threshold"
    if f"{colour}_drop_probability" in fields and not is_enabled:
        yield f"{colour}_drop_probability without wred_{colour}_enable"


def _scheduler(fields: Entry, _database: Database) -> Iterator[str]:
    for name in sorted(fields.keys() - _SCHEDULER_FIELDS):
        yield f"unknown field {name}: the whole scheduler is rejected"
    if fields.get("type") == "STRICT" and "weight" in fields:
        yield "a strict queue has no weight"
    if fields.get("meter_type", "bytes") != "bytes":
        yield f"meter_type is {fields['meter_type']}: Mellanox's SAI takes bytes alone"


def _buffer_profile(fields: Entry, database: Database) -> Iterator[str]:
    kinds = [kind for kind in ("dynamic", "static") if f"{kind}_th" in fields]
    if len(kinds) != 1:
        yield f"{' and '.join(f'{kind}_th' for kind in kinds) or 'no threshold'}: exactly one is needed"
        return
    pool = fields.get("pool")
    mode = database.get("BUFFER_POOL", {}).get(pool, {}).get("mode") if isinstance(pool, str) else None
    if mode not in (None, kinds[0]):
        yield f"{kinds[0]}_th in the pool {pool}, which is {mode}"


def _queue_refusals(table: str, entries: Table) -> Iterator[Refusal]:
    holder: dict[tuple[str, int], str] = {}
    for key in entries:
        parsed = QueueKey.parse(key)
        if parsed is None:
            yield Refusal(f"{table}|{key}", "names no queue of a port")
            continue
        if len(parsed.ports) > 1:
            yield Refusal(f"{table}|{key}", "names several ports: the configuration updater takes one a key")
        if not parsed.queues:
            yield Refusal(f"{table}|{key}", "a range that runs backwards names no queue")
        elif parsed.queues[-1] >= TRAFFIC_CLASSES:
            yield Refusal(
                f"{table}|{key}", f"queue {parsed.queues[-1]} is outside 0 to {TRAFFIC_CLASSES - 1}"
            )
        for pair in parsed.covered:
            other = holder.setdefault(pair, key)
            if other is not key:
                yield Refusal(f"{table}|{key}", f"queue {pair[1]} is in {other}, too")


def _queue_map(fields: Entry, _database: Database) -> Iterator[str]:
    for name in fields:
        queue = number(fields, name)
        if queue is None or queue >= TRAFFIC_CLASSES:
            yield f"queue {fields[name]} is outside 0 to {TRAFFIC_CLASSES - 1}"


_CHECKS: Final[dict[str, Callable[[Entry, Database], Iterator[str]]]] = {
    "TC_TO_QUEUE_MAP": _queue_map,
    "SCHEDULER": _scheduler,
    "WRED_PROFILE": _wred,
    "BUFFER_PROFILE": _buffer_profile,
}
