"""What a SONiC switch answers, as state."""

from collections.abc import Mapping
from typing import Final

from mltswitch.errors import DeviceError
from mltswitch.targets.base import RunningState
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.sonic.capabilities import POOL, POOL_BYTES
from mltswitch.targets.sonic.database import Database, load
from mltswitch.targets.sonic.interpret import lossless_queues, port_state, route_of, routes_of
from mltswitch.targets.state import SwitchState

QUERY: Final = "show runningconfiguration all"


def running_database(answers: Mapping[str, str]) -> Database:
    """CONFIG_DB from the answer, which may begin with warnings; raises DeviceError.

    Text among the tables is the routing daemon's configuration, `bgpraw` (sonic-utilities, show/main.py).
    """
    text = answers[QUERY]
    try:
        return load(text[max(text.find("{"), 0) :], skip_text=True)
    except (ValueError, RecursionError) as error:
        raise DeviceError(f"cannot read the configuration: {error}", where=QUERY) from None


def read_answers(answers: Mapping[str, str], wanted: SwitchState) -> RunningState:
    """State of the wanted ports and queues that exist, and our routes.

    Raises DeviceError for what cannot be read, and for what the plan cannot stand on: another buffer pool,
    PFC on a queue of ours.
    """
    database = running_database(answers)
    if wanted.ports:
        _check_pool(database)
    _check_flow_control(database, wanted)
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


def _check_pool(database: Database) -> None:
    """The predicted losses hold for one size of the pool; the dynamic buffer model leaves the size out."""
    pool = database.get("BUFFER_POOL", {}).get(POOL, {})
    if pool.get("mode") != "dynamic":
        raise DeviceError(
            f"buffer pool {POOL} is {pool.get('mode', 'missing')}",
            expected="dynamic",
            hint="load the vendor's buffers with `config qos reload`, before mltswitch",
        )
    if pool.get("size", str(POOL_BYTES)) != str(POOL_BYTES):
        raise DeviceError(
            f"buffer pool {POOL} has {pool['size']} B, so the plan's limits and predicted losses do not hold",
            expected=f"{POOL_BYTES} B",
            hint="load the buffers of a top-of-rack switch, before mltswitch",
        )


def _check_flow_control(database: Database, wanted: SwitchState) -> None:
    for port in wanted.ports:
        lossless = lossless_queues(database, port.name)
        for queue in port.queues:
            if queue.queue in lossless:
                raise DeviceError(
                    f"PFC is on for queue {queue.queue}, which the plan uses: WRED on a lossless queue drops "
                    "packets that are not ECN-capable",
                    where=f"port {port.name}",
                    hint=f"switch PFC off for it first: PORT_QOS_MAP|{port.name}, pfc_enable",
                )
