"""What vendors' images made of a plan: the reports of one run of an exported lab, device by device."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from mltswitch.deploy import Status
from mltswitch.deploy.session import REFUSED_STEP
from mltswitch.documents import read_text
from mltswitch.errors import UserInputError

GOOD: Final = {
    "lines": (Status.OK,),
    "check": (Status.OK, Status.WOULD_CHANGE),
    "push": (Status.OK, Status.CHANGED),
    "verify": (Status.OK,),
    "rollback": (Status.ROLLED_BACK, Status.OK, Status.RUNS_OLD),
}
"""Step of `verify.sh`, whose report has its name → how a device stands after it where all is well."""
PUSH: Final = "push"
ROLLBACK: Final = "rollback"
"""Of the devices that the push has changed alone: the others have nothing to take back."""
LOGGED: Final = "*.log"


class _Refusal(BaseModel):
    model_config = ConfigDict(frozen=True)

    line: str
    answer: str


class _Device(BaseModel):
    model_config = ConfigDict(frozen=True)

    device: str
    platform: str = ""
    status: Status
    error: str = ""
    differences: tuple[object, ...] = ()
    refusals: tuple[_Refusal, ...] = ()


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True)

    devices: tuple[_Device, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One line that an image refused."""

    device: str
    step: str
    line: str
    answer: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one device stood after one step."""

    device: str
    platform: str
    step: str
    status: str
    is_good: bool
    error: str
    differences: int

    @property
    def why(self) -> str | None:
        """Why it is not good, in a line; None where it is."""
        if self.is_good:
            return None
        return self.error or (f"{self.differences} differences" if self.differences else None)


@dataclass(frozen=True, slots=True)
class LabResults:
    """All steps of a run."""

    outcomes: tuple[Outcome, ...]
    refusals: tuple[Refusal, ...]
    missing: tuple[str, ...]
    """Steps that left no report, or none of a device, and why, as far as their logs say."""

    @property
    def is_good(self) -> bool:
        """Whether every switch took the plan, ran it and went back."""
        return bool(self.outcomes) and not self.missing and all(each.is_good for each in self.outcomes)


def lab_results(folder: Path) -> LabResults:
    """Read the reports of one run; raises UserInputError where the folder has none of them."""
    if not folder.is_dir():
        raise UserInputError(
            "there is no such folder", where=str(folder), expected="the results of an exported verify.sh"
        )
    outcomes: list[Outcome] = []
    refusals: dict[tuple[str, str], Refusal] = {}
    for step, good in GOOD.items():
        file = folder / f"{step}.json"
        report = _report(file) if file.exists() else None
        if report is None:
            continue
        for each in report.devices:
            outcomes.append(
                Outcome(
                    each.device, each.platform, step, each.status, each.status in good, each.error,
                    len(each.differences),
                )
            )  # fmt: skip
            for found in _refusals(each, step):
                refusals.setdefault((found.device, found.line), found)
    if not outcomes and not any(folder.glob(LOGGED)):
        raise UserInputError(
            "holds no report", where=str(folder), expected="the results of an exported verify.sh"
        )
    return LabResults(tuple(outcomes), tuple(refusals.values()), tuple(_missing(folder, outcomes)))


def _missing(folder: Path, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Steps whose report has nothing of a device that it should tell of."""
    everywhere = dict.fromkeys(each.device for each in outcomes)
    changed = {each.device for each in outcomes if each.step == PUSH and each.status == Status.CHANGED}
    for step in GOOD:
        told = {each.device for each in outcomes if each.step == step}
        wanted = [name for name in everywhere if step != ROLLBACK or name in changed]
        lacking = [name for name in wanted if name not in told]
        is_empty = not told and (step != ROLLBACK or bool(wanted) or (folder / f"{step}.json").exists())
        if is_empty:
            yield f"{step}: {_last_line(folder / f'{step}.log')}"
        elif lacking:
            yield f"{step}: it tells nothing of {', '.join(lacking)}"


def _report(file: Path) -> _Report | None:
    """None where the step ended before it had anything to report."""
    text = read_text(file)
    if not text.strip():
        return None
    try:
        return _Report.model_validate_json(text)
    except ValidationError as error:
        what = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise UserInputError(f"is no report: {what}", where=str(file), expected="JSON of mltswitch") from None


def _last_line(log: Path) -> str:
    lines = read_text(log).splitlines() if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "it left no report")


def _refusals(device: _Device, step: str) -> Iterator[Refusal]:
    for each in device.refusals:
        yield Refusal(device.device, step, each.line, each.answer)
    for found in REFUSED_STEP.finditer(device.error):
        yield Refusal(device.device, step, found["line"], found["answer"])
