"""One switch for all tests of a module. Where BMv2 is missing they skip and say why, or fail if asked to."""

import os
import shutil
from collections.abc import Iterator

import pytest

from bmv2_tests.interpreted import interpreted_switch
from bmv2_tests.packets import PORTS, base_lines
from bmv2_tests.switch import INTERPRETER_AND_BMV2, AnySwitch, missing, running_switch
from mltswitch.p4.build import Compiler, find_compiler
from mltswitch.p4.program import Program, shipped_program

REQUIRE_VARIABLE = "MLTSWITCH_REQUIRE_BMV2"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-bmv2", action="store_true", help="Fail where BMv2 or p4c is missing.")


def pytest_runtest_setup(item: pytest.Item) -> None:
    problem = missing() if item.get_closest_marker("bmv2") else None
    if problem is None and "compiler" in getattr(item, "fixturenames", ()) and not shutil.which("p4c-bm2-ss"):
        problem = "not installed: p4c-bm2-ss"
    if problem is None:
        return
    if item.config.getoption("--require-bmv2") or os.environ.get(REQUIRE_VARIABLE):
        pytest.fail(f"BMv2 is required here, but {problem}", pytrace=False)
    pytest.skip(f"{problem} (docs/p4.md says where to get BMv2)")


@pytest.fixture(scope="session")
def program() -> Program:
    return shipped_program()


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    return find_compiler()


@pytest.fixture(scope="module", params=INTERPRETER_AND_BMV2)
def module_switch(request: pytest.FixtureRequest) -> Iterator[AnySwitch]:
    if request.param == "interpreter":
        with interpreted_switch(len(PORTS)) as interpreted:
            yield interpreted
        return
    with running_switch(len(PORTS)) as switch:
        yield switch
        assert switch.is_alive, switch.log()


@pytest.fixture
def switch(module_switch: AnySwitch, program: Program) -> AnySwitch:
    """A switch with the base configuration, its queues empty and its counters 0."""
    module_switch.load(program, base_lines())
    module_switch.drain()
    return module_switch
