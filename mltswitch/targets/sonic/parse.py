"""A rendered document back into state: exactly the objects that this state needs."""

from collections.abc import Mapping
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UserInputError
from mltswitch.targets.sonic.database import Database, dump, load
from mltswitch.targets.sonic.document import document
from mltswitch.targets.sonic.interpret import PortReader, routes_of
from mltswitch.targets.sonic.rules import refusals
from mltswitch.targets.sonic.segments import LOCATORS, locator_of
from mltswitch.targets.state import RouteState, SegmentRouteState, SegmentRouting, SwitchState

FILE: Final = "mltswitch.json"


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """`mltswitch.json`, a document for `config load`."""
    del capabilities
    return {FILE: dump(document(state))}


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Inverse of `write_files`; raises UserInputError naming the object that does not belong."""
    del capabilities
    try:
        database = load(files[FILE])
    except (ValueError, RecursionError) as error:
        raise UserInputError(f"no configuration: {error}", where=FILE) from None
    for refusal in refusals(database):
        raise UserInputError(refusal.problem, where=f"{FILE}: {refusal.where}")
    state = _state(database)
    for port in state.ports:
        if port.unexpected:
            raise UserInputError(f"{port.unexpected[0]}", where=f"{FILE}: port {port.name}")
    _compare(database, document(state))
    return state


def _state(database: Database) -> SwitchState:
    reader = PortReader(database)
    # The document writes a port's queues in order of service.
    ports = tuple(
        reader.port_state(name, reader.queues_of(name)) for name in database.get("PORT_QOS_MAP", {})
    )
    found = [
        route for key, fields in database.get("STATIC_ROUTE", {}).items() for route in routes_of(key, fields)
    ]
    routes = tuple(route for route in found if isinstance(route, RouteState))
    segment_routes = tuple(route for route in found if isinstance(route, SegmentRouteState))
    routing = None
    if segment_routes or LOCATORS in database:
        routing = SegmentRouting(locator_of(database), segment_routes)
    return SwitchState(ports, routes, routing)


def _compare(found: Database, needed: Database) -> None:
    if found == needed:
        return
    for table in sorted({*found, *needed}):
        entries, wanted = found.get(table, {}), needed.get(table, {})
        for key in sorted({*entries, *wanted}):
            if key not in wanted:
                raise UserInputError("is nothing that mltswitch writes", where=f"{FILE}: {table}|{key}")
            if entries.get(key) != wanted[key]:
                raise UserInputError(
                    f"is {entries.get(key, 'missing')}",
                    where=f"{FILE}: {table}|{key}",
                    expected=str(wanted[key]),
                )
        if table not in needed:
            raise UserInputError("is nothing that mltswitch writes", where=f"{FILE}: {table}")
