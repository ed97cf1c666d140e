"""Checks that a device can do what a fabric asks of it, made when a plan is made and when it is rendered.

Some switches know ports by numbers, a fabric by names: the number is then what the name ends with.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from mltswitch.capabilities import Capabilities, PortGroup, PortNumbering
from mltswitch.errors import UnsupportedPlanError
from mltswitch.plan.elements import Port, Switch
from mltswitch.units import format_bps

_DIGITS: Final = re.compile(r"[0-9]+\Z")


def trailing_number(name: str) -> int | None:
    """The number at the end of a port's name, such as 3 of `eth3` or `s1-eth3`; None: it ends with no
    digit."""
    digits = _DIGITS.search(name)
    return None if digits is None else int(digits[0])


def check_ports(switch: Switch, device: Capabilities) -> None:
    """Raise UnsupportedPlanError for a port that the device lacks, or that cannot have its rate.

    A machine's ports have any name and rate, and a device whose ports no document describes is not checked.
    """
    groups, numbering = device.ports, device.port_numbering
    if not groups:
        return
    used: defaultdict[int, list[Port]] = defaultdict(list)
    parts_of: dict[int, int] = {}
    for port in switch.ports:
        where = f"{switch.name}: port {port.name}"
        number, parts = _place(port, device, groups, where)
        limit_bps = _group(groups, number).rate_bps // parts
        if port.rate_bps > limit_bps:
            raise UnsupportedPlanError(
                f"{format_bps(port.rate_bps)}, but {device.hardware} has {format_bps(limit_bps)} there",
                where=where,
            )
        used[number].append(port)
        parts_of[number] = max(parts, parts_of.get(number, 1))
    for number, ports in used.items():
        parts, rate_bps = parts_of[number], _group(groups, number).rate_bps
        names, whole = [port.name for port in ports], numbering.name(number)
        where = f"{switch.name}: port {whole}"
        if sum(port.rate_bps for port in ports) > rate_bps:
            raise UnsupportedPlanError(
                f"{', '.join(names)} together exceed the {format_bps(rate_bps)} of one port", where=where
            )
        if parts > 1 and whole in names and whole not in _parts(numbering, number, parts):
            raise UnsupportedPlanError("is cabled whole, and broken out", where=where)
        width = numbering.width(parts) if parts > 1 else 1
        if number % width or (width > 1 and number + 1 in used):
            raise UnsupportedPlanError(
                f"broken out in {parts}, a port of {device.hardware} switches off the next one",
                where=where,
                expected="an upper port of the box, with no cable in the one below",
            )


def _place(port: Port, device: Capabilities, groups: tuple[PortGroup, ...], where: str) -> tuple[int, int]:
    """(number of the box's port, into how many it is broken out, as far as its name and the file say)."""
    numbering, main = device.port_numbering, groups[0].count
    place, names = numbering.place(port.name), f"{numbering.name(0)} to {numbering.name(main - 1)}"
    if place is None or (
        numbering.other_pattern
        and place.number < main
        and port.name == numbering.other_pattern.replace("{n}", str(place.number + numbering.first))
    ):
        raise UnsupportedPlanError(
            f"no port of {device.hardware} under {device.platform} is called so", where=where, expected=names
        )
    if place.number >= sum(group.count for group in groups):
        raise UnsupportedPlanError(f"{device.hardware} has {main} ports", where=where, expected=names)
    whole = numbering.name(place.number)
    if port.breakout == 1 and port.name == whole:
        return place.number, 1
    if port.breakout == 1 and numbering.lane_pattern is None and place.lane is not None:
        raise UnsupportedPlanError(
            f"is a part of {whole}, which is not broken out",
            where=where,
            expected=names,
            hint="where it is broken out, say so at its link: breakout_a or breakout_b",
        )
    if numbering.lanes % port.breakout:
        raise UnsupportedPlanError(
            f"broken out in {port.breakout}, but a port of {device.hardware} has {numbering.lanes} lanes",
            where=where,
        )
    for parts in (2, 4, 8) if port.breakout == 1 else (port.breakout,):
        if numbering.lanes % parts == 0 and port.name in _parts(numbering, place.number, parts):
            return place.number, parts
    if port.breakout == 1:
        return place.number, 1
    raise UnsupportedPlanError(
        f"is no part of {whole} broken out in {port.breakout}",
        where=where,
        expected=", ".join(_parts(numbering, place.number, port.breakout)),
    )


def _parts(numbering: PortNumbering, number: int, parts: int) -> list[str]:
    return [numbering.name(number, part, parts) for part in range(parts)]


def _group(groups: tuple[PortGroup, ...], number: int) -> PortGroup:
    for group in groups[:-1]:
        if number < group.count:
            return group
        number -= group.count
    return groups[-1]


def check_spray_mode(mode: str, device: Capabilities, switch: str) -> None:
    """Raise UnsupportedPlanError naming the switch and the modes that its device can do."""
    if mode not in device.spray_modes:
        raise UnsupportedPlanError(
            f"{device.hardware} under {device.platform} has no configuration for the mode {mode!r}",
            where=f"{switch}: spraying.mode",
            expected=" or ".join(device.spray_modes),
        )


def check_lags(switch: Switch, device: Capabilities) -> None:
    """Raise UnsupportedPlanError for a link aggregation group that the device's configuration cannot name."""
    pattern = device.port_numbering.lag_pattern
    for port in switch.ports:
        if not port.lag:
            continue
        where = f"{switch.name}: port {port.name}"
        if pattern is None:
            raise UnsupportedPlanError(
                f"link aggregation groups of {device.platform} cannot be planned",
                where=where,
                hint="take parallel links without a group",
            )
        if not re.fullmatch(re.escape(pattern).replace(r"\{n\}", "[0-9]{1,4}"), port.lag):
            raise UnsupportedPlanError(
                f"{port.lag!r} is no name of a link aggregation group", where=where, expected=pattern
            )
    trust: dict[str, bool] = {}
    for port in switch.ports:
        if port.lag and trust.setdefault(port.lag, port.trusted) != port.trusted:
            raise UnsupportedPlanError(
                f"some ports of {port.lag} are trusted and some are not",
                where=f"{switch.name}: trusted_ports",
            )


def check_lossless(names: Sequence[str], device: Capabilities, switch: str) -> None:
    """Raise UnsupportedPlanError naming the switch where it has no queue to leave to a lossless class."""
    if len(names) > len(device.lossless_queues):
        raise UnsupportedPlanError(
            f"{device.hardware} under {device.platform} has no lossless queue for {names[-1]}",
            where=f"{switch}: classes.others",
            expected=f"at most {len(device.lossless_queues)} lossless classes",
            hint="leave the class out, or give it a guaranteed_share where losses do no harm",
        )
