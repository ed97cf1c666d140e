"""The fleet that is rendered, and the figures that its benchmark answers with."""

import json
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import ansible_template, render_fleet
from benchmarks.fleet import fleet, one_plan
from mltswitch.app.rendering import render_device
from mltswitch.targets import targets

KINDS = 4 * len(targets())
"""Each platform as three leaves and a spine."""


def test_no_two_devices_have_anything_in_common() -> None:
    members = list(islice(fleet(), KINDS))
    profiles = [profile.queues for member in members for profile in member.plan.port_profiles]
    maps = [tuple((entry.name, entry.dscp) for entry in member.plan.classes) for member in members]
    routes = [
        route.prefix for member in members for route in set(member.plan.topology.routes(member.device.switch))
    ]
    for values in (profiles, maps, routes):
        assert len(set(values)) == len(values)
    assert {member.device.platform for member in members} == set(targets())
    spines = {member.device.platform for member in members if member.device.switch == "spine1"}
    assert spines == set(targets())


def test_the_fleet_is_the_same_each_time() -> None:
    assert [m.plan for m in islice(fleet(), 7)] == [m.plan for m in islice(fleet(), 7)]


def test_one_plan_has_every_platform_and_renders() -> None:
    plan, leaves = one_plan(len(targets()))
    assert [leaf.platform for leaf in leaves] == list(targets())
    for leaf in leaves:
        fitted, files = render_device(plan, leaf)
        assert len(fitted.state.ports) >= 16
        assert files


@pytest.fixture
def few_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_fleet, "QUICK_DEVICES", len(targets()))
    monkeypatch.setattr(render_fleet, "ANSIBLE_QUICK_DEVICES", 2)


OUR_FIGURES = {
    "seconds",
    "devices",
    "peak_mb",
    "peak_half_mb",
    "growth_mb",
    "one_plan_seconds",
    *(f"ms_{platform}" for platform in targets()),
}
ANSIBLE_FIGURES = {"ansible_devices", "ansible_seconds", "ratio_to_ansible_template"}


@pytest.mark.usefixtures("few_devices")
def test_it_answers_one_flat_object() -> None:
    result = CliRunner().invoke(render_fleet.main, ["--quick", "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    is_installed = ansible_template.ansible_playbook() is not None
    assert set(found) == OUR_FIGURES | (ANSIBLE_FIGURES if is_installed else set())
    assert found["devices"] == len(targets())
    assert all(isinstance(figure, float) for figure in found.values())
    assert found["seconds"] > 0
    assert found["peak_mb"] >= found["peak_half_mb"] > 0


@pytest.mark.usefixtures("few_devices")
def test_without_ansible_there_is_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_fleet, "ansible_playbook", lambda: None)
    result = CliRunner().invoke(render_fleet.main, ["--quick", "--json"], catch_exceptions=False)
    assert set(json.loads(result.stdout)) == OUR_FIGURES
    assert result.stderr == "no ratio, ansible-playbook is not installed: pip install ansible-core\n"


def test_a_playbook_that_fails_or_writes_something_else_is_noticed(tmp_path: Path) -> None:
    program = tmp_path / "ansible-playbook"
    empty = "for n in host_vars/*; do n=${n##*/}; : > out/${n%.json}; done"
    for body, part in (("exit 4", "failed"), (empty, "another text")):
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        with pytest.raises(RuntimeError, match=part):
            ansible_template.measure_ansible(str(program), 2)
