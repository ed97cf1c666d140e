"""Plans of the example inventories and every configuration rendered from them, byte by byte.

The lab, and a rack in which every leaf runs another switch OS. `make golden` rewrites them.
"""

from pathlib import Path

import pytest

from mltswitch.deploy.journal import state_diagram
from mltswitch.documents import dump_yaml, load_document
from mltswitch.inventory import load_inventory
from mltswitch.inventory.listing import RENDERED
from mltswitch.plan import Fabric, Plan, Topology, check_lossless, check_ports, resolve_fabric
from mltswitch.targets import hardware_capabilities, target_for, targets
from scripts.targets_page import targets_page
from tests.conftest import INVENTORIES
from tests.golden.fabric_fields import table

FIELDS = "## Fields"
"""What stands below this heading of docs/fabric.md is made from the models."""
RACKS = INVENTORIES.parent / "docs" / "racks"
GOLDEN = {"lab": Path(__file__).parent / "files", "mixed": Path(__file__).parent / "mixed"}


def rendered(plan: Plan, inventory: Path) -> dict[str, str]:
    """Path below the golden folder → text."""
    files = {"plan.yaml": dump_yaml(plan)}
    for device in load_inventory(inventory).devices:
        target = target_for(device.platform)
        fitted = target.fit_to_hardware(plan, device.switch)
        texts = target.render(fitted.state, fitted.capabilities)
        files |= {f"{device.name}/{name}": text for name, text in texts.items()}
    return files


def test_the_page_of_targets_is_current(update_golden: bool) -> None:
    page = targets_page()
    file = INVENTORIES.parent / "docs" / "targets.md"
    if update_golden:
        file.write_text(page, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == page, "docs/targets.md is out of date: make golden"


def test_the_table_of_the_fabric_file_is_current(update_golden: bool) -> None:
    file = INVENTORIES.parent / "docs" / "fabric.md"
    page = file.read_text(encoding="utf-8")
    head = page[: page.index(FIELDS) + len(FIELDS)]
    if update_golden:
        page = f"{head}\n\n{table()}"
        file.write_text(page, encoding="utf-8")
    assert page == f"{head}\n\n{table()}", "docs/fabric.md is out of date: make golden"


def test_the_diagram_of_states_is_current(update_golden: bool) -> None:
    file = INVENTORIES.parent / "docs" / "deploy.md"
    page = file.read_text(encoding="utf-8")
    head, rest = page.split("```mermaid\n")
    wanted = f"{head}```mermaid\n{state_diagram()}```{rest.partition('```')[2]}"
    if update_golden:
        page = wanted
        file.write_text(page, encoding="utf-8")
    assert page == wanted, "docs/deploy.md is out of date: make golden"


@pytest.mark.parametrize("file", sorted(RACKS.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_racks_to_copy_are_racks(file: Path) -> None:
    fabric = resolve_fabric(load_document(file, Fabric), hardware_capabilities)
    for switch in Topology(fabric).switches:
        device = hardware_capabilities(switch.platform, switch.hardware)
        check_ports(switch, device)
        check_lossless([entry.name for entry in fabric.classes.lossless], device, switch.name)
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_files(name: str, lab_plan: Plan, mixed_plan: Plan, update_golden: bool) -> None:
    plans, folder = {"lab": lab_plan, "mixed": mixed_plan}, GOLDEN[name]
    files = rendered(plans[name], INVENTORIES / name)
    assert {Path(file).name for file in files} == {*RENDERED, "plan.yaml"} or name == "lab"
    if update_golden:
        for path in folder.rglob("*"):
            if path.is_file():
                path.unlink()
        for file, text in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
        pytest.skip("golden files rewritten: read the difference")
    stored = {
        str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in folder.rglob("*") if p.is_file()
    }
    assert sorted(files) == sorted(stored)
    for file, text in files.items():
        assert text == stored[file], f"{name}: {file} changed; if that is right: make golden"


def test_the_mixed_rack_runs_every_switch_os(mixed_plan: Plan) -> None:
    assert {switch.platform for switch in mixed_plan.topology.switches} == set(targets())
    names = [device.switch for device in load_inventory(INVENTORIES / "mixed").devices]
    assert sorted(names) == sorted(mixed_plan.topology.by_name)
