"""Switches for the tests of the control plane."""

from collections.abc import Iterator

import pytest

from mltswitch.p4.control import open_switch
from mltswitch.p4.program import Program, shipped_program
from mltswitch.p4.switch import Switch
from tests.p4.switches import DEVICE_ID, RunningSwitch, running_switch


@pytest.fixture(scope="session")
def program() -> Program:
    """The one that the package carries."""
    return shipped_program()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSwitch]:
    """One BMv2 for all tests of a module."""
    with running_switch(tmp_path_factory.mktemp("bmv2")) as switch:
        yield switch


@pytest.fixture
def switch(running: RunningSwitch, program: Program) -> Iterator[Switch]:
    """Ours alone, with the program freshly loaded: all tables empty, all counters 0."""
    with open_switch(running.address, device_id=DEVICE_ID) as opened:
        opened.load(program)
        yield opened
