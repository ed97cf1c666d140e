"""What a Python script does with plans and switches: the functions that `import mltswitch` offers.

They take names and paths where the rooms below take documents, print nothing, and ask nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mltswitch import deploy
from mltswitch.app import naming
from mltswitch.app.rendering import render_device
from mltswitch.deploy import FleetReport
from mltswitch.documents import dump_yaml, load_document
from mltswitch.inventory import Inventory, load_inventory
from mltswitch.outputs import write_atomically
from mltswitch.plan import Fabric, Plan
from mltswitch.plan import load_plan as load_sealed_plan
from mltswitch.planning import build_plan as plan_for
from mltswitch.profile import ModelProfile, resolve_profile
from mltswitch.queueing import MODELS
from mltswitch.targets import hardware_capabilities

Place = str | Path
Inventories = Place | Sequence[Place]
"""A file or folder as Ansible reads it, or several."""
_ANY_PORT: Final = None
_NO_PORT: Final[dict[str, tuple[str, ...]]] = {}


def build_plan(
    profile: Place | ModelProfile,
    fabric: Place | Fabric,
    *,
    model: str = MODELS[0],
    at_load: float | None = None,
) -> Plan:
    """Derive the queue thresholds of one model on one fabric, as `mltswitch plan` does.

    Args:
        profile: The name of a bundled profile, a profile file, or the profile itself.
        fabric: A fabric file, or the fabric itself.
        model: The loss model that chooses the thresholds.
        at_load: Choose thresholds for this gradient load alone; None: for all scenarios of the fabric.

    Returns:
        The plan. Where no thresholds keep a class within its loss tolerance, its `unmet` says so.

    Raises:
        UserInputError: A file cannot be read, or a value in it cannot be used.
        UnsupportedPlanError: A switch of the fabric cannot do what the plan needs.
    """
    of_model = profile if isinstance(profile, ModelProfile) else resolve_profile(str(profile))
    if isinstance(fabric, Fabric):
        return plan_for(of_model, fabric, hardware_capabilities, model, at_load=at_load)
    document = load_document(Path(fabric), Fabric)
    with naming(fabric):
        return plan_for(of_model, document, hardware_capabilities, model, at_load=at_load)


def load_plan(file: Place) -> Plan:
    """Read a plan from a file; raises UserInputError for one that was changed by hand since it was made."""
    return load_sealed_plan(Path(file))


def save_plan(plan: Plan, file: Place) -> None:
    """Write a plan as YAML, the whole file or nothing; raises UserInputError where that cannot be."""
    write_atomically(Path(file), dump_yaml(plan))


def render(
    plan: Plan | Place, inventory: Inventories, *, limit: str | None = None
) -> dict[str, dict[str, str]]:
    """Write a plan in the language of every switch, as `mltswitch render` does, and return the texts.

    Args:
        plan: The plan, or its file.
        inventory: Which switches there are.
        limit: Devices or groups, by Ansible's patterns; None: all.

    Returns:
        Device → name of each of its files → text.

    Raises:
        UserInputError: The inventory cannot be read, or contradicts the plan.
        UnsupportedPlanError: A device cannot express the plan.
    """
    known = _known(plan)
    devices = _loaded(inventory).select(limit, known.topology.by_name)
    return {device.name: render_device(known, device)[1] for device in devices}


def diff(plan: Plan | Place, inventory: Inventories, *, limit: str | None = None) -> FleetReport:
    """Find out what a push of a plan would change on each switch, and send nothing.

    A switch that cannot be read is reported, and raises nothing. Raises UserInputError and
    UnsupportedPlanError as `render` does, and MachineError where a package or a key is missing.
    """
    return deploy.diff(_known(plan), _loaded(inventory), limit=limit)


def push(
    plan: Plan | Place,
    inventory: Inventories,
    *,
    limit: str | None = None,
    yes: bool = False,
    accept: bool = False,
) -> FleetReport:
    """Make the switches run a plan: change, read back, compare, save; a switch that fails is taken back.

    Nobody is asked. Without leave, a switch is left alone and reported as failed.

    Args:
        plan: The plan, or its file.
        inventory: Which switches there are, and how they are reached.
        limit: Devices or groups, by Ansible's patterns; None: all.
        yes: Ports may stop forwarding for a while.
        accept: Packets may pass with code points that their port may not use, and running lossless classes
            may lose packets.

    Returns:
        What came of each switch. Raises what `diff` raises, and MachineError where the journal of changes
        cannot be written.
    """
    may_go_down = _ANY_PORT if yes else _NO_PORT
    return deploy.push(_known(plan), _loaded(inventory), limit=limit, accept=accept, may_go_down=may_go_down)


def verify(plan: Plan | Place, inventory: Inventories, *, limit: str | None = None) -> FleetReport:
    """Compare what the switches run with a plan, value by value; raises what `diff` raises."""
    return deploy.verify(_known(plan), _loaded(inventory), limit=limit)


def _known(plan: Plan | Place) -> Plan:
    return plan if isinstance(plan, Plan) else load_plan(plan)


def _loaded(inventory: Inventories) -> Inventory:
    places = [inventory] if isinstance(inventory, str | Path) else inventory
    return load_inventory(*map(Path, places))
