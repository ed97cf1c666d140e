"""The RFC 6902 patches between two configurations: objects before references, removals after both."""

from collections.abc import Iterator
from typing import Final

from mltswitch.targets.sonic.database import LISTING_TABLES, Database, Entry, Table
from mltswitch.targets.sonic.merge import FIELD_TABLES
from mltswitch.targets.sonic.rules import number
from mltswitch.targets.sonic.segments import LOCATORS, SEGMENTS

Operation = dict[str, object]

OBJECTS: Final = (
    "FLEX_COUNTER_TABLE",
    "DSCP_TO_TC_MAP",
    "TC_TO_QUEUE_MAP",
    "TC_TO_PRIORITY_GROUP_MAP",
    "SCHEDULER",
    "WRED_PROFILE",
    "BUFFER_PROFILE",
    LOCATORS,
)
REFERENCES: Final = (*LISTING_TABLES, SEGMENTS, "STATIC_ROUTE")


def patches_between(old: Database, new: Database) -> list[list[Operation]]:
    """Patches in order: room for thresholds, our tables, and what nothing refers to any more; no empty one.

    Room comes first where a queue's threshold and its share of the pool change together, because within a
    patch the updater chooses the order: a threshold above what the queue can hold never acts. In one patch
    with the rest, the updater would take a removed profile and an equal new one for a `move`, as
    python-json-patch does, which its own rules for BUFFER_PROFILE refuse.
    """
    removals: list[Operation] = []
    for table in reversed(OBJECTS):
        removals += _removals(table, old.get(table, {}), new.get(table, {}))
    room = _with_room(old, new)
    patches = [list(_room_between(old, room)), _changes_between(room, new), removals]
    return [patch for patch in patches if patch]


def is_removal(patch: list[Operation]) -> bool:
    """Whether it is the patch that takes away what nothing refers to any more."""
    tables = {str(operation["path"]).split("/")[1] for operation in patch}
    return tables <= set(OBJECTS) and all(operation["op"] == "remove" for operation in patch)


def _with_room(old: Database, new: Database) -> Database:
    """`old` with the greater share or the lower threshold of each profile that changes both.

    Not of one that another queue leaves or enters: it would have what belongs to neither end.
    """
    room = dict(old)
    marks, buffers = dict(old.get("WRED_PROFILE", {})), dict(old.get("BUFFER_PROFILE", {}))
    for name in marks.keys() & buffers.keys():
        mark, share = new.get("WRED_PROFILE", {}).get(name), new.get("BUFFER_PROFILE", {}).get(name)
        if mark is None or share is None or mark == marks[name] or share == buffers[name]:
            continue
        if any(_users(old, *place, name) != _users(new, *place, name) for place in _PLACES):
            continue
        if _exponent(share) > _exponent(buffers[name]):
            buffers[name] = share
        elif _threshold(mark) < _threshold(marks[name]):
            marks[name] = mark
    if marks:
        room["WRED_PROFILE"] = marks
    if buffers:
        room["BUFFER_PROFILE"] = buffers
    return room


_PLACES: Final = (("QUEUE", "wred_profile"), ("BUFFER_QUEUE", "profile"))


def _users(database: Database, table: str, field: str, name: str) -> set[str]:
    return {key for key, fields in database.get(table, {}).items() if fields.get(field) == name}


def _exponent(fields: Entry) -> int:
    """Of a profile of ours, whose form `rules` has checked; another one's counts as 1."""
    text = str(fields.get("dynamic_th"))
    return int(text) if text.removeprefix("-").isdecimal() else 0


def _threshold(fields: Entry) -> int:
    return number(fields, "green_max_threshold") or 0


def _room_between(old: Database, room: Database) -> Iterator[Operation]:
    for table in ("WRED_PROFILE", "BUFFER_PROFILE"):
        yield from _additions(table, old.get(table, {}), room.get(table, {}))


def _changes_between(old: Database, new: Database) -> list[Operation]:
    operations: list[Operation] = []
    for table in OBJECTS:
        operations += _additions(table, old.get(table, {}), new.get(table, {}))
    for table in REFERENCES:
        before, after = old.get(table, {}), new.get(table, {})
        if after:
            operations += _removals(table, before, after)
        operations += _additions(table, before, after)
        if not after:
            operations += _removals(table, before, after)
    return operations


def pointer(*parts: str) -> str:
    """A place in a configuration, by RFC 6901."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _additions(table: str, old: Table, new: Table) -> Iterator[Operation]:
    if new and not old:
        yield {"op": "add", "path": pointer(table), "value": new}
        return
    for key, fields in new.items():
        before = old.get(key)
        if before is None:
            yield {"op": "add", "path": pointer(table, key), "value": fields}
        elif before != fields:
            yield from _changes(table, key, before, fields)


def _changes(table: str, key: str, old: Entry, new: Entry) -> Iterator[Operation]:
    """Of a foreign entry only our fields; a whole object at once where its fields depend on each other."""
    if table not in FIELD_TABLES:
        yield {"op": "replace", "path": pointer(table, key), "value": new}
        return
    for name, value in new.items():
        if old.get(name) != value:
            verb = "replace" if name in old else "add"
            yield {"op": verb, "path": pointer(table, key, name), "value": value}
    for name in old:
        if name not in new:
            yield {"op": "remove", "path": pointer(table, key, name)}


def _removals(table: str, old: Table, new: Table) -> Iterator[Operation]:
    if old and not new:
        # The updater refuses tables that are left empty.
        yield {"op": "remove", "path": pointer(table)}
        return
    for key in old:
        if key not in new:
            yield {"op": "remove", "path": pointer(table, key)}
