"""What `mltswitch diff`, `push` and `verify` print of their reports."""

import json

import pytest

from mltswitch.cli.deploy import _print
from mltswitch.deploy import DeviceReport, FleetReport, Status

SHORTFALLS = ("no cap for control", "no guarantee for background")


def test_what_a_device_cannot_do_is_printed_once_and_first(capsys: pytest.CaptureFixture[str]) -> None:
    report = FleetReport(
        (
            DeviceReport("leaf1", "icos", Status.OK, 1.0, shortfalls=SHORTFALLS),
            DeviceReport("leaf2", "linux", Status.OK, 1.0),
        )
    )
    for with_changes in (False, True):
        assert _print(report, as_json=False, with_changes=with_changes, untested={}) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[:4] == [
            "not done: no cap for control (leaf1)",
            "not done: no guarantee for background (leaf1)",
            "leaf1 (icos): ok, 1.0 s",
            "leaf2 (linux): ok, 1.0 s",
        ]
        assert sum("not done" in line for line in lines) == 2
    _print(report, as_json=True, with_changes=False, untested={})
    devices = json.loads(capsys.readouterr().out)["devices"]
    assert [device["shortfalls"] for device in devices] == [list(SHORTFALLS), []]


def test_the_way_back_of_a_change_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    report = FleetReport(
        (
            DeviceReport("leaf1", "onyx", Status.CHANGED, 1.0, before_file="old/leaf1-0.txt"),
            DeviceReport("leaf2", "sonic", Status.CHANGED, 1.0, way_back="sudo config rollback one"),
            DeviceReport("leaf3", "onyx", Status.OK, 1.0),
        )
    )
    _print(report, as_json=False, with_changes=False, untested={})
    told = [line for line in capsys.readouterr().out.splitlines() if "way back" in line or "before:" in line]
    assert told == [
        "  before: old/leaf1-0.txt",
        "  way back: sudo config rollback one",
        "way back of leaf1: push the plan that ran before, if there was one",
    ]
    _print(report, as_json=True, with_changes=False, untested={})
    devices = json.loads(capsys.readouterr().out)["devices"]
    assert [device["way_back"] for device in devices] == ["", "sudo config rollback one", ""]
