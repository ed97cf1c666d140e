"""Every line of a plan is tried on an emulated switch; those that it refuses are told, nothing is left."""

from pathlib import Path

import pytest

from benchmarks.twins import snapshot
from mltswitch.deploy import Status
from mltswitch.deploy.trial import NONE_TRIED, SKIPPED, try_lines
from switchsim import KINDS, Faults, RefuseLine
from switchsim.faults import Fault, Refuse
from tests.deploy.emulated import plan_of, served

ANSWER = "% Not on this image"
REFUSES = {"eos": r"^\s*random-detect ecn", "cumulus": r"nv set .* min-threshold"}


@pytest.mark.parametrize("platform", REFUSES)
def test_all_refused_lines_are_told_and_nothing_takes_effect(platform: str, tmp_path: Path) -> None:
    plan, switch = plan_of(platform), KINDS[platform]("leaf1", 8)
    before = snapshot(switch, platform)
    with served(tmp_path, platform, switch, RefuseLine(REFUSES[platform], ANSWER)) as rack:
        for _ in range(2):  # the second finds nothing that the first left
            trial = try_lines(plan, rack)
            [report] = trial.report.devices
            assert (report.status, report.error) == (Status.DIFFERS, "")
            [refused] = trial.refused.values()
            assert len({each.line for each in refused}) > 1
            assert all(ANSWER in each.answer for each in refused)
    with served(tmp_path / "well", platform, switch, Faults()) as rack:
        trial = try_lines(plan, rack)
        assert [each.status for each in trial.report.devices] == [Status.OK]
        assert list(trial.refused.values()) == [()]
    assert snapshot(switch, platform) == before


def test_where_lines_take_effect_at_once_none_is_tried(tmp_path: Path) -> None:
    switch = KINDS["onyx"]("leaf1", 8)
    before = snapshot(switch, "onyx")
    with served(tmp_path, "onyx", switch, RefuseLine("^interface|^ip route", ANSWER)) as rack:
        trial = try_lines(plan_of("onyx"), rack)
    [report] = trial.report.devices
    assert (report.status, report.notes, trial.refused) == (Status.OK, (NONE_TRIED,), {})
    assert snapshot(switch, "onyx") == before


def test_lines_of_a_refused_mode_are_not_tried_in_another(tmp_path: Path) -> None:
    plan, switch = plan_of("eos"), KINDS["eos"]("leaf1", 8)
    before = snapshot(switch, "eos")
    with served(tmp_path, "eos", switch, RefuseLine(r"^\s*interface ", ANSWER)) as rack:
        trial = try_lines(plan, rack)
    [report], [refused] = trial.report.devices, trial.refused.values()
    assert report.status is Status.DIFFERS
    assert refused
    assert all(each.line.startswith("interface ") for each in refused)
    [note] = report.notes
    count, _, rest = note.partition(" ")
    assert int(count) > len(refused)
    assert rest == SKIPPED.partition(" ")[2]
    assert snapshot(switch, "eos") == before


class Keeps(Faults):
    """Refuses to drop the lines that were entered."""

    has_lines = False

    def on_line(self, number: int, line: str) -> Fault | None:
        """The refusal."""
        del number
        self.has_lines |= "nv set" in line
        return Refuse(ANSWER) if self.has_lines and line.startswith("nv config detach") else None


def test_no_mark_stays_where_lines_cannot_be_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = KINDS["cumulus"]("leaf1", 8)
    monkeypatch.setenv("MLTSWITCH_STATE", str(tmp_path / "one"))
    with served(tmp_path / "keeps", "cumulus", switch, Keeps()) as rack:
        [report] = try_lines(plan_of("cumulus"), rack).report.devices
        assert report.status is Status.FAILED
        assert ANSWER in report.error
    monkeypatch.setenv("MLTSWITCH_STATE", str(tmp_path / "other"))
    with served(tmp_path / "well", "cumulus", switch) as rack:
        [report] = try_lines(plan_of("cumulus"), rack).report.devices
        assert (report.status, report.error) == (Status.OK, "")
