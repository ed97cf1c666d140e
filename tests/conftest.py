"""Fixtures that several rooms share."""

import faulthandler
import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import HealthCheck, settings

from mltswitch.cli.variables import PREFIX, VARIABLES
from mltswitch.documents import load_document
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import bundled_profile
from mltswitch.targets import hardware_capabilities
from tests.own_machine import take_own_machine

# How fast a machine is, and what runs beside the tests, is no property of ours.
settings.register_profile(
    "search", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# A change is judged by the same few examples everywhere; `make search` and `make laws` draw others, and more.
settings.register_profile("same", settings.get_profile("search"), derandomize=True, max_examples=40)
settings.load_profile("same")

INVENTORIES = Path(__file__).parents[1] / "inventories"
LAB_FABRIC = INVENTORIES / "lab" / "fabric.yaml"
MIXED_FABRIC = INVENTORIES / "mixed" / "fabric.yaml"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Rewrite the golden files.")


CRASHES = "MLTSWITCH_TEST_CRASHES"
"""Names the folder in which processes that run tests say where they were when a signal ended them."""
_kept_open: list[TextIO] = []


@pytest.hookimpl(trylast=True)  # behind pytest's own, which says it where a long run's output hides it
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[CRASHES] = tempfile.mkdtemp(prefix="crashes-")
    else:
        _kept_open.append((Path(os.environ[CRASHES]) / str(os.getpid())).open("w"))
        faulthandler.enable(_kept_open[0], all_threads=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for file in Path(os.environ[CRASHES]).iterdir():
        if text := file.read_text():
            terminalreporter.section("a process that ran tests ended here")
            lines = text.partition("Extension modules:")[0].splitlines()
            terminalreporter.write("\n".join(line for line in lines if "/site-packages/" not in line) + "\n")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[CRASHES])


FIRST = ("test_road", "test_bmv2_road", "test_first_job", "test_lifecycle", "test_lab", "test_export")
"""Modules that take longest begin first, where `--dist loadfile --no-loadscope-reorder` deals modules out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by how early a module should begin."""
    items.sort(key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else len(FIRST))


@pytest.fixture(scope="session", autouse=True)
def _own_machine() -> None:
    """Root's tests change the machine; each process of several that run them has one of its own."""
    if os.geteuid() == 0 and os.environ.get("MLTSWITCH_OWN_MACHINE"):
        with suppress(PermissionError):  # where root may not do that, it has no lab either
            take_own_machine()


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
        for name in VARIABLES:  # what a user has said for the day is not for tests
            patch.delenv(f"{PREFIX}{name}", raising=False)
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


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A background job of a shell is started with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
