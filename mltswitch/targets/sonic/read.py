"""What a SONiC switch answers, as state."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, HazardError
from mltswitch.targets.base import Identity, RunningState
from mltswitch.targets.common import NOT_SAVED
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.sonic.capabilities import MODELS, POOL, model_of
from mltswitch.targets.sonic.database import Database, load
from mltswitch.targets.sonic.document import COUNTERS
from mltswitch.targets.sonic.interpret import (
    PortReader,
    is_asymmetric,
    paused_queues,
    route_of,
    routes_of,
)
from mltswitch.targets.sonic.releases import build_of, release_of
from mltswitch.targets.sonic.segments import OwnSegmentPrefixes, locator_of
from mltswitch.targets.sonic.segments import in_order_of as segments_in_order_of
from mltswitch.targets.state import PortState, RouteState, SegmentRouteState, SegmentRouting, SwitchState

QUERY: Final = "show runningconfiguration all"
HOSTNAME: Final = "hostname"
SHOW_VERSION: Final = "show version"
VERSION: Final = "cat /etc/sonic/sonic_version.yml"
SAVED: Final = "sudo cat /etc/sonic/config_db.json || true"
"""With which it starts (`config save`); where it is not there, nothing tells."""
_FIELD: Final = re.compile(r"^([A-Za-z][A-Za-z ]*?): *(\S.*?)\s*$", re.MULTILINE)


def running_database(answers: Mapping[str, str]) -> Database:
    """CONFIG_DB from the answer, which may begin with warnings; raises DeviceError.

    Text among the tables is the routing daemon's configuration, `bgpraw` (sonic-utilities, show/main.py).
    """
    text = answers[QUERY]
    try:
        return load(text[max(text.find("{"), 0) :], skip_text=True)
    except (ValueError, RecursionError) as error:
        raise DeviceError(f"cannot read the configuration: {error}", where=QUERY) from None


def identify(answers: Mapping[str, str]) -> Identity:
    """Who the switch says it is; raises DeviceError.

    The fields of `show version` are those that the SONiC command reference prints; the serial number is N/A
    on a virtual switch, and missing in old releases.
    """
    shown = dict(_FIELD.findall(answers[SHOW_VERSION]))
    if "SONiC Software Version" not in shown:
        raise DeviceError(
            "is no answer of SONiC", where=SHOW_VERSION, expected="a line SONiC Software Version"
        )
    serial = shown.get("Serial Number", "")
    return Identity(
        answers[HOSTNAME].strip(),
        "" if serial == "N/A" else serial,
        shown.get("HwSKU", ""),
        shown["SONiC Software Version"].removeprefix("SONiC."),
    )


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """The commands whose answers `read_answers` and `change_between` need."""
    del wanted
    return (QUERY, VERSION, SAVED)


def running_build(answers: Mapping[str, str]) -> str:
    """The build that the device runs; raises DeviceError."""
    if build := build_of(answers[VERSION]):
        return build
    raise DeviceError("cannot read which release it runs", where=VERSION, expected="a line build_version")


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """State of the wanted ports and queues that exist, and our routes.

    Raises DeviceError for what cannot be read, and for what the plan cannot stand on: another buffer pool,
    another chip, PFC on a queue of ours.
    """
    database = running_database(answers)
    if wanted.ports:
        _check_hardware(database, capabilities.hardware)
    _check_flow_control(database, wanted)
    state, notes = _state_of(database, wanted), []
    build = running_build(answers)
    if release_of(build) is None:
        notes.append(
            f"SONiC build {build} is none of the public releases that are known: what its updater lets "
            "change is taken to be what SONiC's master lets"
        )
    if answers[SAVED].strip() and _saved_state(answers[SAVED], wanted) != state:
        notes.append(NOT_SAVED)
    return RunningState(state, answers, tuple(notes))


def _saved_state(text: str, wanted: SwitchState) -> SwitchState | None:
    """What a start would bring of the wanted ports and routes; None for what no switch would start with."""
    try:
        return _state_of(load(text, skip_text=True), wanted)
    except (ValueError, RecursionError, DeviceError):
        return None


def _state_of(database: Database, wanted: SwitchState) -> SwitchState:
    reader = PortReader(database)
    ports = tuple(
        reader.port_state(port.name, [queue.queue for queue in port.queues])
        for port in wanted.ports
        if port.name in database.get("PORT", {})
    )
    ports = _with_counters(database, ports)
    own, own_segments = OwnPrefixes(wanted.routes), OwnSegmentPrefixes(wanted.segment_routing)
    found = [
        route
        for key, fields in database.get("STATIC_ROUTE", {}).items()
        if (prefix := route_of(key)) in own or prefix in own_segments
        for route in routes_of(key, fields)
    ]
    routes = in_order_of(wanted.routes, (route for route in found if isinstance(route, RouteState)))
    segment_routes = [route for route in found if isinstance(route, SegmentRouteState)]
    routing = SegmentRouting(
        locator_of(database), segments_in_order_of(wanted.segment_routing, segment_routes)
    )
    is_used = wanted.segment_routing is not None or routing != SegmentRouting(None, ())
    return SwitchState(ports, routes, routing if is_used else None)


def _check_hardware(database: Database, hardware: str) -> None:
    """The predicted losses hold for one model and pool; the dynamic buffer model leaves the size out."""
    pool = database.get("BUFFER_POOL", {}).get(POOL, {})
    if pool.get("mode") != "dynamic":
        raise HazardError(
            f"buffer pool {POOL} is {pool.get('mode', 'missing')}",
            expected="dynamic",
            hint="load the vendor's buffers with `config qos reload`, before mltswitch",
        )
    metadata = database.get("DEVICE_METADATA", {}).get("localhost", {})
    model = model_of(*(str(metadata.get(name, "")) for name in ("platform", "hwsku")))
    planned = next(each for each in MODELS if each.capabilities.hardware == hardware)
    if model is not None and model is not planned:
        raise DeviceError(
            f"the device is a {model.capabilities.hardware}, and the plan is rounded to a {hardware}: "
            "its thresholds, limits and predicted losses do not hold",
            where=f"DEVICE_METADATA, {metadata.get('platform', metadata.get('hwsku'))}",
            hint=f"give the device hardware {model.capabilities.hardware} in the fabric file",
        )
    if "size" in pool and pool["size"] != str(planned.pool_size_bytes):
        raise HazardError(
            f"buffer pool {POOL} has {pool['size']} B, so the plan's limits and predicted losses do not hold",
            expected=f"{planned.pool_size_bytes} B",
            hint="load the buffers of a top-of-rack switch, before mltswitch",
        )


def _with_counters(database: Database, ports: tuple[PortState, ...]) -> tuple[PortState, ...]:
    """Where the counters of marks are off, the first port says so: they are the whole switch's."""
    groups = database.get("FLEX_COUNTER_TABLE", {})
    for name, fields in COUNTERS.items():
        found = groups.get(name, {})
        faults = tuple(
            f"FLEX_COUNTER_TABLE|{name} {field} {found.get(field, 'none')}"
            for field, value in fields.items()
            if found.get(field) != value
        )
        if faults and ports:
            first = replace(ports[0], unexpected=(*ports[0].unexpected, *faults))
            ports = (first, *ports[1:])
    return ports


def _check_flow_control(database: Database, wanted: SwitchState) -> None:
    for port in wanted.ports:
        lossless = paused_queues(database, port.name)
        for queue in port.queues:
            if queue.is_lossless:
                continue
            if queue.queue in lossless and is_asymmetric(database, port.name):
                raise HazardError(
                    f"asymmetric PFC heeds pause frames of every priority, for queue {queue.queue}, too, "
                    "which the plan uses: whoever sends them stops it",
                    where=f"port {port.name}",
                    hint=f"switch it off first: `sudo pfc config asymmetric off {port.name}`",
                )
            if queue.queue in lossless:
                raise HazardError(
                    f"PFC is on for queue {queue.queue}, which the plan uses: WRED on a lossless queue drops "
                    "packets that are not ECN-capable",
                    where=f"port {port.name}",
                    hint=f"switch PFC off for it first: PORT_QOS_MAP|{port.name}, pfc_enable",
                )
