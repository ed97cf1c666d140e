"""The waves in which a push takes the devices, and when it stops."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from mltswitch.deploy.results import DeviceReport, Status
from mltswitch.errors import UserInputError

T = TypeVar("T")
_WAVE: Final = re.compile(r"([1-9][0-9]*)(%?)")


@dataclass(frozen=True, slots=True)
class Rollout:
    """How a push goes through its devices, in Ansible's words."""

    serial: str = "100%"
    """Sizes of the waves, in devices or per cent of all of them: `1,10%,50%`; the last one repeats."""
    max_fail_percentage: float = 0.0
    """Percentage of a wave's devices; if more of them fail, no further wave begins."""
    atomic: bool = False
    """Whether one failure rolls all devices back, and none is saved before all of them run the plan."""
    confirm_seconds: int | None = None
    """After how many seconds the devices roll back unless `confirm` saves them; None: the push saves them."""

    def waves(self, jobs: Sequence[T]) -> list[Sequence[T]]:
        """The jobs in waves of the sizes in `serial`; raises UserInputError."""
        sizes = []
        for word in self.serial.split(","):
            match = _WAVE.fullmatch(word.strip())
            if match is None:
                raise UserInputError(
                    f"{word.strip()!r} is no size of a wave", where="serial", expected="such as 1,10%,50%"
                )
            number = int(match[1])
            sizes.append(max(1, len(jobs) * min(number, 100) // 100) if match[2] else number)
        waves: list[Sequence[T]] = []
        begin = 0
        while begin < len(jobs):
            size = sizes[min(len(waves), len(sizes) - 1)]
            waves.append(jobs[begin : begin + size])
            begin += size
        return waves

    def is_failure(self, reports: Sequence[DeviceReport]) -> bool:
        """Whether so many devices of a wave failed that no further wave begins."""
        bad = sum(report.status is Status.FAILED for report in reports)
        return bad > 0 if self.atomic else 100 * bad > self.max_fail_percentage * len(reports)
