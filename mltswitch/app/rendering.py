"""Renders a plan in the language of one device."""

from collections.abc import Iterable

from mltswitch.capabilities import Unverified
from mltswitch.errors import UserInputError
from mltswitch.inventory import Device
from mltswitch.plan import Plan
from mltswitch.targets import FittedState, target_for


def require_platform(device: Device, platform: str) -> None:
    """Raise UserInputError where a device's platform in the inventory is not that of the plan."""
    if platform != device.platform:
        raise UserInputError(
            f"its platform is {device.platform} in the inventory, {platform} in the plan's fabric",
            where=device.name,
        )


def render_device(plan: Plan, device: Device) -> tuple[FittedState, dict[str, str]]:
    """The plan as one device can express it, and its files: name → text.

    Raises:
        UserInputError: the inventory contradicts the plan.
        UnsupportedPlanError: the device cannot express the plan.
    """
    require_platform(device, plan.topology.switch(device.switch).platform)
    target = target_for(device.platform, where=device.name)
    fitted = target.fit_to_hardware(plan, device.switch)
    return fitted, target.render(fitted.state, fitted.capabilities)


def unverified(plan: Plan, devices: Iterable[Device]) -> dict[str, tuple[Unverified, ...]]:
    """`platform/hardware` → what nobody has tested on real hardware, for the devices in use."""
    found: dict[str, tuple[Unverified, ...]] = {}
    for device in devices:
        hardware = plan.topology.switch(device.switch).hardware
        capabilities = target_for(device.platform, where=device.name).hardware(hardware)
        if capabilities.unverified:
            found[f"{device.platform}/{capabilities.hardware}"] = capabilities.unverified
    return dict(sorted(found.items()))
