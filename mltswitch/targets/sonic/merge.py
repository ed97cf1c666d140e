"""A device's configuration with our objects in it: what should run, all else untouched."""

import copy
import re
from collections.abc import Iterator
from typing import Final

from mltswitch.errors import DeviceError
from mltswitch.targets.routes import OwnPrefixes
from mltswitch.targets.sonic.database import Database, QueueKey, Table, queue_keys
from mltswitch.targets.sonic.document import UNTRUSTED_MAP, document
from mltswitch.targets.sonic.interpret import route_of
from mltswitch.targets.state import SwitchState

QUEUE_TABLES: Final = ("QUEUE", "BUFFER_QUEUE")
_OUR_PROFILE: Final = re.compile(r"MLT_Q[0-7]_Ethernet[0-9]+")
_OUR_NAMES: Final = {
    "WRED_PROFILE": _OUR_PROFILE,
    "BUFFER_PROFILE": _OUR_PROFILE,
    "DSCP_TO_TC_MAP": re.compile(UNTRUSTED_MAP),
}
"""Objects that go when nothing refers to them any more."""


def merged(running: Database, wanted: SwitchState) -> Database:
    """`running` changed as the plan wants it; raises DeviceError where the device lacks a port."""
    check_ports(running, wanted)
    target = copy.deepcopy(running)
    for table, entries in document(wanted).items():
        if table in QUEUE_TABLES:
            target[table] = _carved(target.get(table, {}), entries)
        elif table == "PORT_QOS_MAP":
            existing = target.setdefault(table, {})
            for port, fields in entries.items():
                existing[port] = {**existing.get(port, {}), **fields}
        else:
            target.setdefault(table, {}).update(entries)
    _drop_foreign_routes(target, wanted)
    _drop_unused(target)
    return {table: entries for table, entries in target.items() if entries or table in running}


def check_ports(running: Database, wanted: SwitchState) -> None:
    """Ports must exist: SONiC's own message about them is hard to read."""
    known = running.get("PORT", {})
    for port in wanted.ports:
        if port.name not in known:
            raise DeviceError(
                f"the device has no port {port.name}", hint="compare with `show interfaces status`"
            )


def _carved(existing: Table, ours: Table) -> Table:
    """Keys that name a queue of ours give it up, and keep the rest of what they name."""
    owned = {pair for key in ours if (parsed := QueueKey.parse(key)) for pair in parsed.covered}
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


def _drop_foreign_routes(target: Database, wanted: SwitchState) -> None:
    own = OwnPrefixes(wanted.routes)
    planned = document(wanted).get("STATIC_ROUTE", {})
    for key in list(target.get("STATIC_ROUTE", {})):
        if key not in planned and route_of(key) in own:
            del target["STATIC_ROUTE"][key]


def _drop_unused(target: Database) -> None:
    used = set(_references(target))
    for table, pattern in _OUR_NAMES.items():
        for name in list(target.get(table, {})):
            if name not in used and pattern.fullmatch(name):
                del target[table][name]


def _references(database: Database) -> Iterator[str]:
    for entries in database.values():
        for fields in entries.values():
            for value in fields.values():
                yield from value.split(",") if isinstance(value, str) else value
