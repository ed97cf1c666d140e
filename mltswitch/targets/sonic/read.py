"""What a SONiC switch answers, as state."""

from collections.abc import Mapping
from typing import Final

from mltswitch.errors import DeviceError
from mltswitch.targets.base import RunningState
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.sonic.database import Database, load
from mltswitch.targets.sonic.interpret import port_state, route_of, routes_of
from mltswitch.targets.state import SwitchState

QUERY: Final = "show runningconfiguration all"


def running_database(answers: Mapping[str, str]) -> Database:
    """CONFIG_DB from the answer, which may begin with warnings; raises DeviceError."""
    text = answers[QUERY]
    try:
        return load(text[max(text.find("{"), 0) :])
    except (ValueError, RecursionError) as error:
        raise DeviceError(f"cannot read the configuration: {error}", where=QUERY) from None


def read_answers(answers: Mapping[str, str], wanted: SwitchState) -> RunningState:
    """State of the wanted ports and queues that exist, and our routes; raises DeviceError."""
    database = running_database(answers)
    ports = tuple(
        port_state(database, port.name, [queue.queue for queue in port.queues])
        for port in wanted.ports
        if port.name in database.get("PORT", {})
    )
    own = OwnPrefixes(wanted.routes)
    routes = (
        route
        for key, fields in database.get("STATIC_ROUTE", {}).items()
        if route_of(key) in own
        for route in routes_of(key, fields)
    )
    return RunningState(SwitchState(ports, in_order_of(wanted.routes, routes)), answers)
