"""A device's configuration merged with a plan, all else in it untouched, and the patches that lead there."""

from collections.abc import Iterator
from typing import Final

from mltswitch.errors import DeviceError
from mltswitch.targets.sonic import database as db
from mltswitch.targets.sonic import objects
from mltswitch.targets.sonic.database import QUEUE_TABLES, Database, Entry, Place, Table, split
from mltswitch.targets.sonic.objects import LOCATORS, SEGMENTS
from mltswitch.targets.sonic.releases import Operation
from mltswitch.targets.state import SwitchState

FIELD_TABLES: Final = ("PORT_QOS_MAP", "FLEX_COUNTER_TABLE")
"""Tables of whose entries mltswitch manages only some fields."""
OBJECTS: Final = (
    *("FLEX_COUNTER_TABLE", "DSCP_TO_TC_MAP", "TC_TO_QUEUE_MAP", "TC_TO_PRIORITY_GROUP_MAP"),
    *("SCHEDULER", "WRED_PROFILE", "BUFFER_PROFILE", LOCATORS),
)
"""Tables whose entries others refer to."""
REFERENCES: Final = (*db.LISTING_TABLES, SEGMENTS, "STATIC_ROUTE")
Patch = list[Operation]
"""Operations of one JSON patch (RFC 6902), which the updater applies whole or not at all."""


def merged(running: Database, wanted: SwitchState) -> Database:
    """`running` changed as the plan wants it, with one key a port.

    The updater refuses every patch of a configuration in which one key lists several ports. Raises
    DeviceError where the device lacks a port.
    """
    for port in wanted.ports:
        if port.name not in running.get("PORT", {}):  # SONiC's own message about it is hard to read
            raise DeviceError(
                f"the device has no port {port.name}", hint="compare with `show interfaces status`"
            )
    needed = objects.document(wanted)
    target = {table: dict(entries) for table, entries in split(running, needed).items()}
    for table, entries in needed.items():
        before = target.get(table, {})
        if table in QUEUE_TABLES:
            target[table] = _carved(before, entries) | entries
        elif table in FIELD_TABLES:
            target[table] = before | {key: before.get(key, {}) | fields for key, fields in entries.items()}
        else:
            target[table] = before | entries
    for table, key in list(_unplanned(target, wanted, needed)):
        del target[table][key]
    return {table: entries for table, entries in target.items() if entries or table in running}


def unmerged(running: Database, was: Database, wanted: SwitchState) -> Database:
    """`running` with all that `merged` changes as it was before; raises DeviceError if a port is gone."""
    needed = objects.document(wanted)
    pushed, apart = merged(was, wanted), split(was, needed)

    def is_changed(table: str, part: str) -> bool:
        fields, *known = (database.get(table, {}).get(part) for database in (running, pushed, apart))
        return fields is not None and fields not in known

    # What somebody has changed since of a key's parts stays as it is, and so the key stays apart.
    changed = [
        (table, key)
        for table, key in db.listing_places(was)
        if any(is_changed(table, part) for part in db.parts_of(key))
    ]
    was = split(was, needed, changed)
    target = {table: dict(entries) for table, entries in running.items()}
    for table in dict.fromkeys((*was, *pushed)):
        old, new, entries = was.get(table, {}), pushed.get(table, {}), target.setdefault(table, {})
        for key in dict.fromkeys((*old, *new)):
            if old.get(key) == new.get(key):
                continue
            fields, kept = old.get(key, {}), {}
            if table in FIELD_TABLES and key in new:
                kept = {name: text for name, text in entries.get(key, {}).items() if name not in new[key]}
                fields = {name: text for name, text in fields.items() if name in new[key]}
            entries[key] = kept | fields
            if not entries[key] and key not in old:
                del entries[key]
    return {table: entries for table, entries in target.items() if entries or table in was}


def _carved(existing: Table, ours: Table) -> Table:
    """Keys that name a queue of ours give it up, and keep the rest of what they name."""
    owned = {port: {queues[0] for _, queues in keys} for port, keys in db.keys_by_port(ours).items()}
    kept: Table = {}
    for key, fields in existing.items():
        port, queues = db.queues_in(key)
        rest = [queue for queue in queues if queue not in owned.get(port, ())]
        if len(rest) == len(queues):
            kept[key] = fields
        else:
            for remainder in db.queue_keys(port, rest):
                kept.setdefault(remainder, fields)
    return kept


def _unplanned(target: Database, wanted: SwitchState, needed: Database) -> Iterator[Place]:
    """What is ours and not in the plan: routes, segments, and objects to which nothing refers any more."""
    own = objects.own_prefixes(wanted)
    used = {
        name
        for entries in target.values()
        for fields in entries.values()
        for value in fields.values()
        for name in db.text_of(value).split(",")
    }
    for table, entries in target.items():
        for key in entries.keys() - needed.get(table, {}).keys():
            if (
                (table == "STATIC_ROUTE" and objects.prefix_of(key) in own)
                or (table == LOCATORS and key == objects.MAP)
                or (table == SEGMENTS and objects.is_own_segment(key))
                or (wanted.ports and key not in used and objects.is_own_object(table, key))
            ):
                yield table, key


def changes_between(old: Database, new: Database) -> list[Patch]:
    """The patches in order: room for thresholds, then the objects, each before its references; none empty.

    Room comes first where a queue's threshold and its share of the pool change together, because within a
    patch the updater chooses the order: a threshold above what the queue can hold never acts.
    """
    room = _with_room(old, new)
    first = [each for table in ("WRED_PROFILE", "BUFFER_PROFILE") for each in _additions(table, old, room)]
    then = [each for table in OBJECTS for each in _additions(table, room, new)]
    for table in REFERENCES:
        then += [*_removals(table, room, new), *_additions(table, room, new)]
    return [patch for patch in (first, then) if patch]


def removals_between(old: Database, new: Database) -> Patch:
    """The patch that removes what nothing refers to any more.

    In one patch with the rest, the updater would take a removed profile and an equal new one for a `move`, as
    python-json-patch does, which its own rules for BUFFER_PROFILE refuse.
    """
    return [each for table in reversed(OBJECTS) for each in _removals(table, old, new)]


def _with_room(old: Database, new: Database) -> Database:
    """`old` with the greater share or the lower threshold of each profile that changes both.

    Not of one that another queue leaves or enters: it would have what belongs to neither end.
    """
    room = {table: dict(old[table]) for table in ("WRED_PROFILE", "BUFFER_PROFILE") if table in old}
    marks, buffers = room.get("WRED_PROFILE", {}), room.get("BUFFER_PROFILE", {})
    for name in marks.keys() & buffers.keys():
        mark, share = new.get("WRED_PROFILE", {}).get(name), new.get("BUFFER_PROFILE", {}).get(name)
        if mark is None or share is None or mark == marks[name] or share == buffers[name]:
            continue
        if _users(old, name) != _users(new, name):
            continue
        if _exponent(share) > _exponent(buffers[name]):
            buffers[name] = share
        elif _threshold(mark) < _threshold(marks[name]):
            marks[name] = mark
    return old | room


def _users(database: Database, name: str) -> set[tuple[str, str]]:
    return {
        (setting.field, key)
        for setting in objects.SETTINGS
        for key, fields in database.get(setting.table, {}).items()
        if fields.get(setting.field) == name
    }


def _exponent(fields: Entry) -> int:
    """Of a profile of ours; another one's counts as 1."""
    text = str(fields.get("dynamic_th"))
    return int(text) if text.removeprefix("-").isdecimal() else 0


def _threshold(fields: Entry) -> int:
    return db.number(fields, "green_max_threshold") or 0


def pointer(*parts: str) -> str:
    """The JSON Pointer (RFC 6901) of a place in a configuration."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _additions(table: str, old: Database, new: Database) -> Iterator[Operation]:
    """Entries that are new or changed: as a whole, for their fields depend on each other, but where only some
    fields are ours those alone."""
    before, after = old.get(table, {}), new.get(table, {})
    if after and not before:
        yield {"op": "add", "path": pointer(table), "value": after}
        return
    for key, fields in after.items():
        if key not in before:
            yield {"op": "add", "path": pointer(table, key), "value": fields}
        elif before[key] != fields and table not in FIELD_TABLES:
            yield {"op": "replace", "path": pointer(table, key), "value": fields}
        elif before[key] != fields:
            own = before[key]
            for name, value in fields.items():
                if own.get(name) != value:
                    verb = "replace" if name in own else "add"
                    yield {"op": verb, "path": pointer(table, key, name), "value": value}
            gone = (name for name in own if name not in fields)
            yield from ({"op": "remove", "path": pointer(table, key, name)} for name in gone)


def _removals(table: str, old: Database, new: Database) -> Iterator[Operation]:
    before, after = old.get(table, {}), new.get(table, {})
    if before and not after:  # the updater refuses tables that are left empty
        yield {"op": "remove", "path": pointer(table)}
        return
    yield from ({"op": "remove", "path": pointer(table, key)} for key in before if key not in after)
