"""The RFC 6902 patches between two configurations: objects before references, removals after both."""

from collections.abc import Iterator
from typing import Final

from mltswitch.targets.sonic.database import Database, Entry, Table

Operation = dict[str, object]

OBJECTS: Final = (
    "DSCP_TO_TC_MAP",
    "TC_TO_QUEUE_MAP",
    "TC_TO_PRIORITY_GROUP_MAP",
    "SCHEDULER",
    "WRED_PROFILE",
    "BUFFER_PROFILE",
)
REFERENCES: Final = ("QUEUE", "BUFFER_QUEUE", "PORT_QOS_MAP", "STATIC_ROUTE")


def patches_between(old: Database, new: Database) -> list[list[Operation]]:
    """One patch that changes our tables, and one that removes what nothing refers to any more; no empty one.

    In one patch, the updater would take a removed profile and an equal new one for a `move`, as
    python-json-patch does, which its own rules for BUFFER_PROFILE refuse.
    """
    removals: list[Operation] = []
    for table in reversed(OBJECTS):
        removals += _removals(table, old.get(table, {}), new.get(table, {}))
    return [patch for patch in (_changes_between(old, new), removals) if patch]


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


def _pointer(*parts: str) -> str:
    """RFC 6901."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _additions(table: str, old: Table, new: Table) -> Iterator[Operation]:
    if new and not old:
        yield {"op": "add", "path": _pointer(table), "value": new}
        return
    for key, fields in new.items():
        before = old.get(key)
        if before is None:
            yield {"op": "add", "path": _pointer(table, key), "value": fields}
        elif before != fields:
            yield from _changes(table, key, before, fields)


def _changes(table: str, key: str, old: Entry, new: Entry) -> Iterator[Operation]:
    """Of a foreign entry only our fields; a whole object at once where its fields depend on each other."""
    if table != "PORT_QOS_MAP":
        yield {"op": "replace", "path": _pointer(table, key), "value": new}
        return
    for name, value in new.items():
        if old.get(name) != value:
            verb = "replace" if name in old else "add"
            yield {"op": verb, "path": _pointer(table, key, name), "value": value}


def _removals(table: str, old: Table, new: Table) -> Iterator[Operation]:
    if old and not new:
        # The updater refuses tables that are left empty.
        yield {"op": "remove", "path": _pointer(table)}
        return
    for key in old:
        if key not in new:
            yield {"op": "remove", "path": _pointer(table, key)}
