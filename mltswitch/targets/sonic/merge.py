"""A device's configuration with our objects in it: what should run, all else untouched."""

import re
from collections.abc import Iterator
from typing import Final

from mltswitch.errors import DeviceError
from mltswitch.targets.routes import OwnPrefixes
from mltswitch.targets.sonic.database import (
    QUEUE_TABLES,
    Database,
    QueueKey,
    Table,
    contradiction,
    keys_by_queue,
    listing_keys,
    parts_of,
    queue_keys,
    split,
)
from mltswitch.targets.sonic.document import MAP_NAMES, document
from mltswitch.targets.sonic.interpret import route_of
from mltswitch.targets.sonic.segments import (
    LOCATOR,
    LOCATORS,
    SEGMENTS,
    OwnSegmentPrefixes,
    is_own_segment,
)
from mltswitch.targets.state import SwitchState

FIELD_TABLES: Final = ("PORT_QOS_MAP", "FLEX_COUNTER_TABLE")
"""Of whose entries only some fields are ours."""
_QUEUE_AND_PORT: Final = "Q[0-7]_Ethernet[0-9]+"
_OUR_NAMES: Final = {
    "WRED_PROFILE": re.compile(f"MLT_{_QUEUE_AND_PORT}"),
    "BUFFER_PROFILE": re.compile(f"MLT_{_QUEUE_AND_PORT}"),
    "SCHEDULER": re.compile(f"MLT_(MIN|MAX)_{_QUEUE_AND_PORT}"),
    "DSCP_TO_TC_MAP": re.compile("|".join(MAP_NAMES)),
}
"""Objects that go when the plan does not need them and nothing refers to them any more."""


def merged(running: Database, wanted: SwitchState) -> Database:
    """`running` changed as the plan wants it, with a key a port: the updater refuses every patch of a
    configuration in which one key lists several. Raises DeviceError where the device lacks a port."""
    check_ports(running, wanted)
    needed = document(wanted)
    target = {table: dict(entries) for table, entries in split(running).items()}
    _check_overlaps(running, target, needed)
    for table, entries in needed.items():
        if table in QUEUE_TABLES:
            target[table] = _carved(target.get(table, {}), entries)
        elif table in FIELD_TABLES:
            existing = target.setdefault(table, {})
            for key, fields in entries.items():
                existing[key] = {**existing.get(key, {}), **fields}
        else:
            target.setdefault(table, {}).update(entries)
    _drop_foreign_routes(target, wanted, needed.get("STATIC_ROUTE", {}))
    _drop_segments(target, needed)
    if wanted.ports:
        _drop_unused(target, needed)
    return {table: entries for table, entries in target.items() if entries or table in running}


def unmerged(running: Database, was: Database, wanted: SwitchState) -> Database:
    """`running` with all as it was that `merged` changes there; raises DeviceError where a port is gone."""
    pushed, apart = merged(was, wanted), split(was)
    # What somebody has changed since of a key's parts stays as it is, and so the key stays apart.
    was = split(was, [each for each in listing_keys(was) if _is_changed(*each, running, apart, pushed)])
    target = {table: dict(entries) for table, entries in running.items()}
    for table in dict.fromkeys((*was, *pushed)):
        old, new = was.get(table, {}), pushed.get(table, {})
        entries = target.setdefault(table, {})
        for key in dict.fromkeys((*old, *new)):
            if old.get(key) == new.get(key):
                continue
            fields = dict(old.get(key, {}))
            if table in FIELD_TABLES and key in new:
                others = {name: value for name, value in entries.get(key, {}).items() if name not in new[key]}
                fields = others | {name: value for name, value in fields.items() if name in new[key]}
            entries[key] = fields
            if not fields and key not in old:
                del entries[key]
    return {table: entries for table, entries in target.items() if entries or table in was}


def _is_changed(table: str, key: str, running: Database, *ours: Database) -> bool:
    found, *known = (database.get(table, {}) for database in (running, *ours))
    return any(
        part in found and found[part] not in [entries.get(part) for entries in known]
        for part in parts_of(table, key)
    )


def check_ports(running: Database, wanted: SwitchState) -> None:
    """Ports must exist: SONiC's own message about them is hard to read."""
    known = running.get("PORT", {})
    for port in wanted.ports:
        if port.name not in known:
            raise DeviceError(
                f"the device has no port {port.name}", hint="compare with `show interfaces status`"
            )


def _check_overlaps(running: Database, apart: Database, needed: Database) -> None:
    """A key that is taken apart is set anew, and must not win over another for a queue that is not ours."""
    for table, key in listing_keys(running):
        owned = _covered(needed.get(table, {}))
        holders = keys_by_queue(apart[table]) if table in QUEUE_TABLES else {}
        for part in parts_of(table, key) if holders else ():
            for port, queue in _covered({part: {}}) - owned:
                for other in holders[port][queue]:
                    if apart[table][other] != running[table][key]:
                        raise contradiction(table, key, other)


def _covered(table: Table) -> set[tuple[str, int]]:
    return {pair for key in table if (parsed := QueueKey.parse(key)) for pair in parsed.covered}


def _carved(existing: Table, ours: Table) -> Table:
    """Keys that name a queue of ours give it up, and keep the rest of what they name."""
    owned = _covered(ours)
    kept: Table = {}
    for key, fields in existing.items():
        parsed = QueueKey.parse(key)
        if parsed is None or owned.isdisjoint(parsed.covered):
            kept[key] = fields
            continue
        for port in parsed.ports:
            rest = [queue for queue in parsed.queues if (port, queue) not in owned]
            for remainder in queue_keys(port, rest):
                kept.setdefault(remainder, dict(fields))
    return kept | ours


def _drop_foreign_routes(target: Database, wanted: SwitchState, planned: Table) -> None:
    own, own_segments = OwnPrefixes(wanted.routes), OwnSegmentPrefixes(wanted.segment_routing)
    for key in list(target.get("STATIC_ROUTE", {})):
        if key not in planned and ((prefix := route_of(key)) in own or prefix in own_segments):
            del target["STATIC_ROUTE"][key]


def _drop_segments(target: Database, needed: Database) -> None:
    """Our locator goes with the plan that had one; nobody else's is touched."""
    if LOCATOR not in needed.get(LOCATORS, {}):
        target.get(LOCATORS, {}).pop(LOCATOR, None)
    for key in list(target.get(SEGMENTS, {})):
        if is_own_segment(key) and key not in needed.get(SEGMENTS, {}):
            del target[SEGMENTS][key]


def _drop_unused(target: Database, needed: Database) -> None:
    used = set(_references(target))
    for table, pattern in _OUR_NAMES.items():
        for name in list(target.get(table, {})):
            if name not in needed.get(table, {}) and name not in used and pattern.fullmatch(name):
                del target[table][name]


def _references(database: Database) -> Iterator[str]:
    for entries in database.values():
        for fields in entries.values():
            for value in fields.values():
                yield from value.split(",") if isinstance(value, str) else value
