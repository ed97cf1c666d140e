"""Whether a device can do what a fabric asks of it: said when a plan is made, and when it is rendered."""

import re
from collections.abc import Sequence

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UnsupportedPlanError
from mltswitch.plan.elements import Switch


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
