"""Whether a device can do what a spray mode asks: said when a plan is made, and when it is rendered."""

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UnsupportedPlanError


def check_spray_mode(mode: str, device: Capabilities, switch: str) -> None:
    """Raise UnsupportedPlanError naming the switch and the modes that its device can do."""
    if mode not in device.spray_modes:
        raise UnsupportedPlanError(
            f"{device.hardware} under {device.platform} has no configuration for the mode {mode!r}",
            where=f"{switch}: spraying.mode",
            expected=" or ".join(device.spray_modes),
        )
