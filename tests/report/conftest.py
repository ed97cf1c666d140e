"""One report that the room's tests share, small enough to be made quickly."""

from collections.abc import Callable

import pytest

from mltswitch.documents import validate
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import ModelProfile, bundled_profile
from mltswitch.queueing import SimulationSettings
from mltswitch.report import plan_report
from mltswitch.targets import hardware_capabilities
from tests.plan.examples import SMALL

QUICK = SimulationSettings(packets=40_000, replications=4)


@pytest.fixture(scope="session")
def resnet50() -> ModelProfile:
    return bundled_profile("resnet50")


@pytest.fixture(scope="session")
def burst_plan(resnet50: ModelProfile) -> Plan:
    """Bursts of 8, and one kind of port that differs from the others."""
    given = SMALL | {
        "classes": SMALL["classes"] | {"gradients": {"dscp": [34, 36, 26]}},
        "ports": SMALL["ports"] | {"overrides": {"leaf-up": {"rate": "40Mbps", "load": 0.7}}},
    }
    return build_plan(resnet50, validate(given, Fabric, where="test"), hardware_capabilities, "paper")


@pytest.fixture(scope="session")
def small_plan(resnet50: ModelProfile) -> Plan:
    """Two gradient classes, one kind of port."""
    given = SMALL | {"classes": SMALL["classes"] | {"gradients": {"dscp": [34, 36]}}}
    return build_plan(resnet50, validate(given, Fabric, where="test"), hardware_capabilities, "paper")


@pytest.fixture(scope="session")
def page(burst_plan: Plan, resnet50: ModelProfile) -> str:
    return plan_report(burst_plan, resnet50, QUICK)


@pytest.fixture(scope="session")
def quick_report(resnet50: ModelProfile) -> Callable[[Plan], str]:
    return lambda plan: plan_report(plan, resnet50, QUICK)


@pytest.fixture(scope="session")
def small_page(small_plan: Plan, resnet50: ModelProfile) -> str:
    return plan_report(small_plan, resnet50, QUICK)
