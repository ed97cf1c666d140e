"""The lab's plan and every configuration rendered from it, byte by byte; `make golden` rewrites them."""

from pathlib import Path

import pytest

from mltswitch.cli.targets import targets_page
from mltswitch.documents import dump_yaml
from mltswitch.inventory import load_inventory
from mltswitch.plan import Plan
from mltswitch.targets import target_for, targets

GOLDEN = Path(__file__).parent / "files"
INVENTORY = Path(__file__).parents[2] / "inventories" / "lab"


def rendered(plan: Plan) -> dict[str, str]:
    """Path below the golden folder → text."""
    files = {"plan.yaml": dump_yaml(plan)}
    for device in load_inventory(INVENTORY).devices:
        target = target_for(device.platform)
        texts = target.render(target.quantise(plan, device.switch).state)
        files |= {f"{device.name}/{name}": text for name, text in texts.items()}
    return files


def test_the_page_of_targets_is_current(update_golden: bool) -> None:
    page = targets_page([target.hardware(None) for target in targets().values()])
    file = INVENTORY.parents[1] / "docs" / "targets.md"
    if update_golden:
        file.write_text(page, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == page, "docs/targets.md is out of date: make golden"


def test_golden_files(lab_plan: Plan, update_golden: bool) -> None:
    files = rendered(lab_plan)
    if update_golden:
        for path in GOLDEN.rglob("*"):
            if path.is_file():
                path.unlink()
        for name, text in files.items():
            (GOLDEN / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / name).write_text(text, encoding="utf-8")
        pytest.skip("golden files rewritten: read the difference")
    stored = {
        str(p.relative_to(GOLDEN)): p.read_text(encoding="utf-8") for p in GOLDEN.rglob("*") if p.is_file()
    }
    assert sorted(files) == sorted(stored)
    for name, text in files.items():
        assert text == stored[name], f"{name} changed; if that is right: make golden"
