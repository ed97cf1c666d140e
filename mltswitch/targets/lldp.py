"""What switches tell of their neighbours (IEEE 802.1AB), each OS in its own form.

Sources: lldpd's `json0` is the form whose structure does not depend on how many entries there are
(lldpctl(8); sonic-gnmi reads it for `show lldp`); EOS as Arista's AVD and public clients of its API read it;
Onyx as HPE's CANU reads and records it; the tables of NVUE (NVUE reference, `nv show interface lldp`) and of
FASTPATH (Dell N-series and NETGEAR command references, `show lldp remote-device all`).
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from mltswitch.targets.base import Neighbour
from mltswitch.targets.common import json_in

_ONYX_PORT: Final = re.compile(r"Eth([0-9/]+)")
_RULE: Final = re.compile(r"--[- ]*")


def lldpd_neighbours(answer: str) -> Iterator[Neighbour]:
    """The neighbours in `lldpctl -f json0`; none where the daemon is missing."""
    shown = json_in(answer) if answer.strip() else {}
    for part in shown["lldp"] if shown else ():
        for entry in part.get("interface", ()):
            system = _values(entry, "chassis", "name")
            ports = (*_values(entry, "port", "id"), *_values(entry, "port", "descr"))
            if system:
                yield Neighbour(str(entry["name"]), system[0], ports)


def _values(entry: Any, group: str, name: str) -> tuple[str, ...]:
    return tuple(str(each["value"]) for part in entry.get(group, ()) for each in part.get(name, ()))


def eos_neighbours(answer: str) -> Iterator[Neighbour]:
    """The neighbours in `show lldp neighbors | json`."""
    for entry in json_in(answer)["lldpNeighbors"]:
        yield Neighbour(str(entry["port"]), str(entry["neighborDevice"]), (str(entry["neighborPort"]),))


def onyx_neighbours(answer: str) -> Iterator[Neighbour]:
    """The neighbours in `show lldp interfaces ethernet remote | json-print`; `Eth1/1 (Po1)` is in a LAG."""
    for part in json_in(answer):
        for name, entries in part.items():
            if (port := _ONYX_PORT.match(name)) is None:
                continue  # `Lines`, where no neighbour is known
            for entry in entries:
                ports = (str(entry.get(f"Remote {word}", "")) for word in ("port-id", "port description"))
                yield Neighbour(port[1], str(entry.get("Remote system name", "")), tuple(ports))


def nvue_neighbours(answer: str) -> Iterator[Neighbour]:
    """The neighbours in `nv show interface lldp`: Interface, Speed, Type, Remote Host, Remote Port."""
    return (Neighbour(row[0], row[3], (row[4],)) for row in _rows(answer))


def fastpath_neighbours(answer: str) -> Iterator[Neighbour]:
    """The neighbours in `show lldp remote-device all`: Interface, RemID, Chassis ID, Port ID, System Name.

    A name too long for its column ends in dots, so it is no switch's.
    """
    return (Neighbour(row[0], row[4], (row[3],)) for row in _rows(answer))


def _rows(answer: str) -> Iterator[list[str]]:
    """Rows below the rule of a table whose five columns the rule's dashes mark, with a first cell.

    Raises ValueError where there is no such table, for nobody knows then who the neighbours are.
    """
    starts: list[int] = []
    for line in answer.splitlines():
        if _RULE.fullmatch(line.strip()):
            starts = [match.start() for match in re.finditer("-+", line)]
            if len(starts) != 5:
                raise ValueError(f"a table of {len(starts)} columns, not 5")
        elif starts:
            cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
            if cells[0]:
                yield cells
    if answer.strip() and not starts:
        raise ValueError(f"no table, but {answer.strip()[:80]!r}")
