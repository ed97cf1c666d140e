"""Fixtures that several rooms share."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from mltswitch.documents import load_document
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import bundled_profile
from mltswitch.targets import hardware_capabilities

# How fast a machine is, and what runs beside the tests, is no property of ours.
settings.register_profile(
    "mltswitch", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("mltswitch")

INVENTORIES = Path(__file__).parents[1] / "inventories"
LAB_FABRIC = INVENTORIES / "lab" / "fabric.yaml"
MIXED_FABRIC = INVENTORIES / "mixed" / "fabric.yaml"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Rewrite the golden files.")


READ_BY_ANSIBLE = {"inventory", "errors"}
"""Folders of tests whose inventories Ansible's own loader reads; it takes seconds each time."""


@pytest.fixture(autouse=True)
def _small_inventory_loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not READ_BY_ANSIBLE.intersection(request.path.parts):
        monkeypatch.setattr("mltswitch.inventory.load.ansible_program", lambda: None)


@pytest.fixture(scope="session", autouse=True)
def _journal_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a whole run shares, such as a lab to which a plan was pushed, begins without one, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLTSWITCH_STATE", str(tmp_path_factory.getbasetemp() / "state" / "session"))
        yield


@pytest.fixture(autouse=True)
def _own_journal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each test begins without a change on record, and leaves none in the user's own directory."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    monkeypatch.setenv("MLTSWITCH_STATE", str(tmp_path_factory.getbasetemp() / "state" / name))


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def lab_plan() -> Plan:
    """ResNet-50 on the example fabric."""
    fabric = load_document(LAB_FABRIC, Fabric)
    return build_plan(bundled_profile("resnet50"), fabric, hardware_capabilities, "paper")


@pytest.fixture(scope="session")
def mixed_plan() -> Plan:
    """ResNet-50 on the example rack in which every leaf runs another switch OS."""
    fabric = load_document(MIXED_FABRIC, Fabric)
    return build_plan(bundled_profile("resnet50"), fabric, hardware_capabilities, "paper")


@pytest.fixture
def mixed_inventory() -> Path:
    """The switches of `mixed_plan`."""
    return MIXED_FABRIC.parent
