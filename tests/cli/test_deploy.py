"""What `mltswitch diff`, `push` and `verify` print of their reports."""

import io
import json

import click
import pytest

from mltswitch.cli.deploy import agreed_ports
from mltswitch.cli.fleet import report_answer
from mltswitch.cli.output import Answer
from mltswitch.cli.switches import name_ranges, roundings_table
from mltswitch.deploy import DeviceDifference, DeviceReport, FleetReport, Status
from mltswitch.targets import Rounding

SHORTFALLS = ("no cap for control", "no guarantee for background")


def test_what_a_device_cannot_do_is_printed_once_and_first(capsys: pytest.CaptureFixture[str]) -> None:
    report = FleetReport(
        (
            DeviceReport("leaf1", "icos", Status.OK, 1.0, shortfalls=SHORTFALLS),
            DeviceReport("leaf2", "linux", Status.OK, 1.0),
        )
    )
    for with_changes in (False, True):
        assert report_answer(report, with_changes=with_changes).print(as_json=False) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[:4] == [
            "not done: no cap for control (leaf1)",
            "not done: no guarantee for background (leaf1)",
            "leaf1 (icos): ok, 1.0 s",
            "leaf2 (linux): ok, 1.0 s",
        ]
        assert sum("not done" in line for line in lines) == 2
    report_answer(report).print(as_json=True)
    devices = json.loads(capsys.readouterr().out)["devices"]
    assert [device["shortfalls"] for device in devices] == [list(SHORTFALLS), []]


def test_the_way_back_of_a_change_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    report = FleetReport(
        (
            DeviceReport("leaf1", "onyx", Status.CHANGED, 1.0),
            DeviceReport("leaf2", "sonic", Status.CHANGED, 1.0, way_back="sudo config rollback one"),
            DeviceReport("leaf3", "onyx", Status.OK, 1.0),
        ),
        change="20261126-120501-347561",
    )
    report_answer(report).print(as_json=False)
    told = [line for line in capsys.readouterr().out.splitlines() if "back" in line]
    assert told == [
        "  way back: sudo config rollback one",
        "change 20261126-120501-347561; `mltswitch rollback 20261126-120501-347561` takes it back",
    ]
    report_answer(report).print(as_json=True)
    devices = json.loads(capsys.readouterr().out)["devices"]
    assert [device["way_back"] for device in devices] == ["", "sudo config rollback one", ""]


def test_ports_and_devices_that_are_rounded_alike_share_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    fields = (("ecn_threshold_bytes", "96,896 B", "98,304 B"), ("limit", "96,896 B", "none"))
    entries = tuple(Rounding(port, 5, "gradient-2", *field) for port in ("1/1", "1/2") for field in fields)
    shown = roundings_table({f"leaf{n}": ("onyx", "sn2100", entries) for n in (1, 2, 3)})
    Answer(None, (shown,)).print(as_json=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[-3:-1] == [
        "leaf1–leaf3, 2 ports each onyx sn2100 ECN threshold: gradient-2 96,896 B → 98,304 B",  # noqa: RUF001
        "limit: gradient-2 96,896 B → none",
    ]


def test_names_that_count_up_are_a_range() -> None:
    assert name_ranges(["leaf1", "leaf2", "leaf4", "rack", "a9", "a10"]) == "leaf1–leaf2, leaf4, rack, a9–a10"  # noqa: RUF001


def test_a_difference_is_told_in_words_once_for_ports_that_differ_alike(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = tuple(
        DeviceDifference("leaf1", f"Ethernet{n}", 5, "gradient-2", "ecn_threshold_bytes", "128000", "96000")
        for n in range(0, 20, 4)
    )
    route = DeviceDifference("leaf1", "", None, None, "route 10.0.0.0/8", "via 10.1.0.1", "absent")
    report = FleetReport((DeviceReport("leaf1", "eos", Status.DIFFERS, 1.0, differences=(*found, route)),))
    assert report_answer(report).print(as_json=False) == 5
    lines = capsys.readouterr().out.splitlines()
    change = "gradient-2: ECN threshold 96,000 B → 128,000 B"
    assert f"  leaf1 Ethernet0, Ethernet4, Ethernet8 and 2 more ports, {change}" in lines
    assert "  leaf1: route 10.0.0.0/8 absent → via 10.1.0.1" in lines
    assert str(found[0]) == f"leaf1 Ethernet0, {change}"


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


def test_ports_that_go_down_are_named_and_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = DeviceReport("leaf1", "sonic", Status.WOULD_CHANGE, 1.0, takes_down=("Ethernet0", "Ethernet4"))
    report = FleetReport((stopped, DeviceReport("leaf2", "sonic", Status.OK, 1.0)))
    monkeypatch.setattr("sys.stdin", Terminal("y\nn\n"))
    assert agreed_ports(report, "Resume") == {"leaf1": ("Ethernet0", "Ethernet4")}
    with pytest.raises(click.Abort):
        agreed_ports(report, "Resume")
    asked, named, question, *_ = capsys.readouterr().err.splitlines()
    assert asked == "Ports stop forwarding for a while:"
    assert named == "leaf1: Ethernet0, Ethernet4"
    assert question.startswith("Resume all the same?")
