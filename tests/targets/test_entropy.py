"""Spraying by UDP source ports: every switch OS can, because none is configured for it."""

from mltswitch.documents import dump_yaml, parse_yaml, validate
from mltswitch.plan import Plan, sealed
from mltswitch.targets import known_hardware, target_for


def with_mode(plan: Plan, mode: str) -> Plan:
    paths = plan.paths.model_copy(update={"mode": mode})
    spraying = plan.fabric.spraying.model_copy(update={"mode": mode})
    fabric = plan.fabric.model_copy(update={"spraying": spraying})
    return sealed(plan.model_copy(update={"paths": paths, "fabric": fabric}))


def test_every_hardware_can() -> None:
    for entry in known_hardware()[0]:
        assert "entropy" in entry.spray_modes, entry.hardware


def test_nothing_is_rendered_for_it(mixed_plan: Plan) -> None:
    """What `alias` gets, and no more: the routes of the alias addresses are there in every mode."""
    plan = with_mode(mixed_plan, "entropy")
    for switch in plan.topology.switches:
        target = target_for(switch.platform)
        assert target.fit_to_hardware(plan, switch.name) == target.fit_to_hardware(mixed_plan, switch.name)


def test_a_plan_document_may_say_it(lab_plan: Plan) -> None:
    plan = with_mode(lab_plan, "entropy")
    again = validate(parse_yaml(dump_yaml(plan), where="plan.yaml"), Plan, where="plan.yaml")
    assert (again.paths.mode, again.fabric.spraying.mode) == ("entropy", "entropy")
