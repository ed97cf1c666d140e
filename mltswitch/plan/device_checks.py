"""Whether a device can do what a fabric asks of it: said when a plan is made, and when it is rendered."""

from collections.abc import Sequence

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


def check_lossless(names: Sequence[str], device: Capabilities, switch: str) -> None:
    """Raise UnsupportedPlanError naming the switch where it has no queue to leave to a lossless class."""
    if len(names) > len(device.lossless_queues):
        raise UnsupportedPlanError(
            f"{device.hardware} under {device.platform} has no lossless queue for {names[-1]}",
            where=f"{switch}: classes.others",
            expected=f"at most {len(device.lossless_queues)} lossless classes",
            hint="leave the class out, or give it a guaranteed_share where losses do no harm",
        )
