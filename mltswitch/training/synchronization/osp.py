"""Overlapped synchronization in two stages (OSP, Chen et al., ICPP 2023): what matters first.

Routine synchronization (RS, `Stage.NOW`) sums the important slices of the model, and the step waits for it.
In-computation synchronization (ICS, `Stage.LATER`) sums the others while the next step computes; until then
own gradients stand in for the sums (section 4.2). Which slices are important, and how many bytes are not, all
ranks find alike in the ballot of the step before: there each rank tells the importance of its share of the
pieces, the loss and its times. No server has to know the model, and any topology carries it.
"""

import logging
import zlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from math import isfinite, nan
from statistics import fmean
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, Field, PositiveFloat

from mltswitch.errors import UserInputError
from mltswitch.training.axes import Exchange, Needs, NoSettings, Stage, Sum, settings_of
from mltswitch.training.job import BALLOT_FIGURES, Job
from mltswitch.training.synchronization.bsp import BspKeeper, BspMember
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

_log: Final = logging.getLogger(__name__)
MOST_SHARE: Final = 0.8
"""The largest share of the model that is synchronized later (section 4.1.2)."""
LATE_SHARE: Final = 0.05
"""Share of the computing time within which an ICS that ends after it does not count as late."""
LESS_AFTER_LATE: Final = 0.97
MORE_AN_EPOCH: Final = 1.02
MEASURED_OVER: Final = 16
"""Number of steps over which computing and communication times are averaged."""
HASH_BITS: Final = 20
"""Length of a bitmap's hash, which stays exact in float32 when divided and multiplied by the number of
ranks."""


class OspSettings(NoSettings):
    """Settings of the synchronization `osp`."""

    share: float | None = Field(default=None, ge=0, le=1)
    """Share of the model's bytes that is synchronized later, once ranks know what is important; None: it is
    tuned."""
    most_share: float = Field(default=MOST_SHARE, ge=0, le=1)
    """The largest share that tuning may choose."""
    steps_per_epoch: int = Field(default=100, ge=1, strict=True)
    growth: Literal["loss", "none"] = "loss"
    """Whether the later share grows as the loss falls from epoch to epoch (algorithm 1), or is full from
    epoch 2 on."""
    tuning: Literal["measured", "paper"] = "measured"
    """How the largest later share is found: as what fits into computing by measured times, or by equation
    5."""
    link_bps: float | None = Field(default=None, gt=0)
    """The link's rate in bit/s, which equation 5 needs, beside `loss_ratio`; None: not needed."""
    loss_ratio: float = Field(default=0.0, ge=0, le=1)
    importance: Literal["sum", "mean"] = "sum"
    """Whether a slice counts by the sum over its elements (equation 4), or by their mean, so that size does
    not matter."""
    slice_bytes: int | None = Field(default=4 << 20, ge=1, strict=True)
    """Size of the slices that are ranked by importance; None: whole layers, as in the paper."""
    prediction: Literal["optimizer", "local", "none"] = "optimizer"
    """Prediction of parameters until late sums come: the optimizer's step with own gradients, p - lr · g, or
    none."""
    late: Literal["wait", "carry"] = "wait"
    """Whether a step waits for the ICS of the step before (`wait`), or that may end `most_late` steps later
    (`carry`)."""
    most_late: int = Field(default=2, ge=1, le=16, strict=True)

    @property
    def lag(self) -> int:
        """Number of steps whose ICS may be under way beside that of the step before."""
        return self.most_late if self.late == "carry" else 0


class Slices:
    """Slices of the model: runs of pieces that are ranked by importance as one.

    Args:
        slice_bytes: largest size of a slice, unless a piece is larger; None: a slice is a layer.
    """

    def __init__(self, job: Job, slice_bytes: int | None) -> None:
        self._element_bytes = job.wire_bytes
        self.members: list[list[int]] = []
        """Pieces of each."""
        self.elements: list[int] = []
        layer = -1
        most = None if slice_bytes is None else slice_bytes // self._element_bytes
        for number, piece in enumerate(job.pieces):
            is_full = most is not None and self.elements and self.elements[-1] + piece.count > most
            if piece.layer != layer or is_full:
                self.members.append([])
                self.elements.append(0)
            layer = piece.layer
            self.members[-1].append(number)
            self.elements[-1] += piece.count

    def least_important(self, importance: Sequence[float], most_bytes: float, *, by_mean: bool) -> list[int]:
        """The least important slices that fit together into `most_bytes`, ties by number; ones that do not
        fit are skipped.

        Args:
            by_mean: whether a slice counts by the mean of its elements.
        """
        sums = [sum(importance[piece] for piece in members) for members in self.members]
        values = [
            total / max(count, 1) if by_mean else total
            for total, count in zip(sums, self.elements, strict=True)
        ]
        chosen, left = [], most_bytes / self._element_bytes
        for number in sorted(range(len(values)), key=lambda number: (values[number], number)):
            if self.elements[number] <= left:
                chosen.append(number)
                left -= self.elements[number]
        return chosen


class Progress(BaseModel):
    """The state that decides how many bytes are synchronized later, as a checkpoint has it."""

    loss: float = 0.0
    """Sum of the losses of this epoch's steps."""
    first_loss: float | None = Field(default=None, gt=0)
    """Mean loss of the first epoch that has one; None: there is none yet."""
    growth: float = Field(default=0.0, ge=0, le=1)
    """Share of the largest number of bytes that the fall of the loss allows."""
    backing_off: float = Field(default=1.0, ge=0, le=1)
    """Factor by which late ICS have reduced that share."""
    steps: int = Field(default=0, ge=0)
    computing: list[PositiveFloat] = []
    """Computing time of the last steps, in seconds."""
    exchanging: list[PositiveFloat] = []
    """Exchange time of the whole model in the last steps, in seconds."""


class Size:
    """Decides how many bytes are synchronized later, by algorithm 1 from figures that all ranks know."""

    def __init__(self, job: Job, settings: OspSettings) -> None:
        self._settings = settings
        self._world = job.world
        self.model_bytes: Final = job.elements * job.wire_bytes
        self.progress = Progress()

    @property
    def bytes(self) -> float:
        """How many bytes of the next step are synchronized later."""
        settings, now = self._settings, self.progress
        if settings.share is not None:
            return settings.share * self.model_bytes
        return now.growth * now.backing_off * min(self._fitting, settings.most_share * self.model_bytes)

    @property
    def _fitting(self) -> float:
        """Bytes that are exchanged in the time of computing."""
        if not self.progress.computing:
            return 0.0
        seconds = fmean(self.progress.computing)
        if self._settings.link_bps is not None and self._settings.tuning == "paper":
            rate_bps = self._settings.link_bps * (1 + self._settings.loss_ratio)
            return rate_bps / BITS_PER_BYTE * seconds / self._world
        if not self.progress.exchanging:
            return self.model_bytes
        return self.model_bytes * seconds / fmean(self.progress.exchanging)

    def counted(self, loss: float, computing: float, exchanging: float, late: float) -> None:
        """Take a ballot's figures: mean loss, computing and exchange times, and how many ranks had a late
        ICS."""
        now = self.progress
        now.loss += loss
        now.steps += 1
        if isfinite(computing) and computing > 0:
            now.computing = [*now.computing, computing][-MEASURED_OVER:]
        if isfinite(exchanging) and exchanging > 0:
            now.exchanging = [*now.exchanging, exchanging][-MEASURED_OVER:]
        if late:
            now.backing_off *= LESS_AFTER_LATE
        if now.steps % self._settings.steps_per_epoch == 0:
            self._end_epoch(now.loss / self._settings.steps_per_epoch)
            now.loss = 0.0

    def _end_epoch(self, loss: float) -> None:
        now = self.progress
        now.backing_off = min(1.0, now.backing_off * MORE_AN_EPOCH)
        if self._settings.growth == "none":
            now.growth = 1.0
        elif not isfinite(loss) or (now.first_loss is None and loss <= 0):
            self._warn(f"is {loss:g}")
        elif now.first_loss is None:
            now.first_loss = loss
        elif loss > now.first_loss:
            self._warn(f"has risen from {now.first_loss:g} to {loss:g}")
        else:
            now.growth = min(1.0, 1 - loss / now.first_loss)

    def _warn(self, problem: str) -> None:
        epoch = self.progress.steps // self._settings.steps_per_epoch
        _log.warning("osp, epoch %d: the loss %s; what is synchronized later stays", epoch, problem)


class OspMember(BspMember):
    """A rank's part of `osp`, which exchanges important pieces now and the others during the next
    computation."""

    def __init__(self, job: Job, rank: int, settings: OspSettings) -> None:
        super().__init__(job)
        self.lag, self.prediction = settings.lag, str(settings.prediction)
        self._rank, self._world = rank, job.world
        self._by_mean = settings.importance == "mean"
        self._counts: Final = [piece.count for piece in job.pieces]
        self._slices: Final = Slices(job, settings.slice_bytes)
        self.size: Final = Size(job, settings)
        self._own_importance = [0.0] * self._pieces
        """This rank's share."""
        self._importance: Sequence[float] = ()
        """As the last ballot has it; empty: not known."""
        self._later: dict[int, frozenset[int]] = {}
        self._open: dict[int, Counter[Stage]] = {}
        """How many sums are to come, by step."""
        self._ballots = 0
        self._first_ns = 0
        """When the first gradients of the last step were there."""
        self._computed = -1, 0
        """The last step of which all gradients were there, and when."""
        self._loss = self._seconds = nan
        self._held: deque[tuple[int, tuple[int, ...]]] = deque()
        """Steps and pieces of ICS that begin when the one before is over: together both would take longer."""
        self._later_step, self._later_ns = -1, 0
        """The ICS that is under way, and since when; -1: none."""
        self._rs_seconds = self._exchanging = 0.0
        """That the last RS took, and that the last RS and ICS took that are over; 0: not known."""
        self._is_late = False

    def ready(self, step: int, pieces: Sequence[int], now_ns: int) -> list[Exchange]:
        """Exchange the important ones of these pieces now."""
        later = self.later(step)
        if step not in self._open:
            self._first_ns = now_ns
            self._open[step] = Counter({Stage.NOW: self._pieces - len(later) + 1, Stage.LATER: len(later)})
        now = tuple(piece for piece in pieces if piece not in later)
        return [Exchange(step, now)] if now else []

    def computed(self, step: int, loss: float, seconds: float, now_ns: int) -> list[Exchange]:
        """Note loss and time of the step for its ballot; nothing more is exchanged."""
        self._loss, self._seconds, self._computed = loss, seconds, (step, now_ns)
        return []

    def vote(self, step: int) -> Sequence[float]:
        """What this rank tells the others of a step: its training loss, the step's seconds, 1 if an exchange
        during computation (ICS) was late; then the digest of its bitmap, its seconds, and importances."""
        digests, times = [0.0] * self._world, [0.0] * self._world
        digests[self._rank], times[self._rank] = self._digest(step), self._exchanging
        figures = [self._loss, self._seconds, float(self._is_late)]
        self._is_late = False
        figures += [0.0] * (BALLOT_FIGURES - len(figures))
        return [*figures, *digests, *times, *self._own_importance]

    def counted(self, step: int, ballot: Sequence[float]) -> list[int]:  # noqa: ARG002
        """Read a step's ballot; returns the ranks whose bitmap differs from this rank's."""
        self._ballots += 1
        first, second, third = (BALLOT_FIGURES + count * self._world for count in range(3))
        # whoever came last to an exchange has not waited for others
        exchanging = min((seconds for seconds in ballot[second:third] if seconds > 0), default=0.0)
        self.size.counted(ballot[0] / self._world, ballot[1] / self._world, exchanging, ballot[2])
        importance = ballot[third : third + self._pieces]
        if any(importance) and all(map(isfinite, importance)):
            self._importance = importance
        digests = [round(figure) if isfinite(figure) else -1 for figure in ballot[first:second]]
        return [rank for rank, digest in enumerate(digests) if digest != digests[self._rank]]

    def arrived(self, step: int, result: Sum, now_ns: int) -> list[Exchange]:
        """With the last sum of RS, exchange all that is unimportant; earlier it would only delay RS."""
        waiting = self._open[step]
        waiting[result.stage] -= 1
        if result.stage is Stage.NOW and not waiting[Stage.NOW]:
            self._rs_seconds = (now_ns - self._first_ns) / NANOSECONDS
            if waiting[Stage.LATER]:
                self._held.append((step, tuple(sorted(self.later(step), reverse=True))))
            else:
                self._exchanging = self._rs_seconds
        elif result.stage is Stage.LATER and not waiting[Stage.LATER]:
            self._later_step = -1
            computed, at_ns = self._computed
            if computed <= step + self.lag:
                self._exchanging = self._rs_seconds + (now_ns - self._later_ns) / NANOSECONDS
            else:  # the next RS went before it, so that its time says nothing
                self._is_late |= now_ns - at_ns > LATE_SHARE * self._seconds * NANOSECONDS
        if not waiting.total():
            del self._open[step]
        if not self._held or self._later_step >= 0:
            return []
        self._later_step, pieces = self._held.popleft()
        self._later_ns = now_ns
        return [Exchange(self._later_step, pieces, Stage.LATER)]

    @property
    def holds(self) -> bool:
        """Whether some ICS has not begun yet."""
        return bool(self._held)

    def weighed(self, importance: Mapping[int, float]) -> None:
        """Note the importance of pieces for the next ballot."""
        for piece, value in importance.items():
            self._own_importance[piece] = value

    def later(self, step: int) -> frozenset[int]:
        """The pieces of the least important slices, by the ballot of the step before."""
        found = self._later.get(step)
        if found is None:
            chosen: list[int] = []
            if self._importance:
                chosen = self._slices.least_important(
                    self._importance, self.size.bytes, by_mean=self._by_mean
                )
            found = frozenset(piece for number in chosen for piece in self._slices.members[number])
            self._later[step] = found
            self._later.pop(step - 3 - self.lag, None)
        return found

    def may_compute(self, step: int) -> bool:
        """Whether RS and ballot of the step before are over, and each ICS that may not be under way any
        more."""
        if self._ballots < step:
            return False
        return not any(
            other < step - 1 - self.lag or waiting[Stage.NOW] for other, waiting in self._open.items()
        )

    def state(self) -> dict[str, Any]:
        """The epochs, times and importances that a checkpoint must keep."""
        own = {"rank": self._rank, "own": [*self._own_importance]}
        return {"size": self.size.progress.model_dump(), "importance": [*self._importance], **own}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with the next step of a checkpoint; from another rank's, without that rank's own
        importances."""
        try:
            progress = Progress.model_validate(state["size"])
            known, own = ([float(figure) for figure in state[name]] for name in ("importance", "own"))
            is_own, lengths = state["rank"] == self._rank, ({len(known)} - {0}) | {len(own)}
        except (LookupError, TypeError, ValueError) as error:
            raise UserInputError(f"is no state of osp: {error!r:.100}", where="state") from None
        if lengths != {self._pieces}:
            expected = f"{self._pieces} pieces"
            raise UserInputError(f"is of another job: {lengths} pieces", where="state", expected=expected)
        self.size.progress, self._importance = progress, known
        share = own if is_own else known or own
        self._own_importance = [
            value if piece % self._world == self._rank else 0.0 for piece, value in enumerate(share)
        ]

    def _digest(self, step: int) -> int:
        later = self.later(step)
        bitmap = bytes(piece in later for piece in range(self._pieces))
        return zlib.crc32(bitmap, step) % (1 << HASH_BITS)


class OspKeeper(BspKeeper):
    """Gives sums of both stages out when the gradients of all ranks are in them."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._ballot = len(job.pieces)

    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        """Expect one sum after another in each stage; ballots are never exchanged later."""
        if after is not None:
            return [after.next]
        return [Sum(piece, 0, stage) for stage in Stage if piece != self._ballot or stage is Stage.NOW]


class Osp:
    """The registered synchronization `osp`."""

    name = "osp"
    needs = Needs()
    votes = True

    def of(self, job: Job) -> Self:
        """This synchronization, equal for every job; raises UserInputError for wrong settings."""
        settings = settings_of(job, OspSettings)
        if settings.tuning == "paper" and settings.link_bps is None:
            raise UserInputError("is missing: equation 5 needs it", where="synchronization.osp.link_bps")
        if job.world < 2:
            raise UserInputError("has one rank, and nothing to exchange", where="synchronization.osp")
        return self

    def member(self, job: Job, rank: int) -> OspMember:
        """A new member of `osp` for one rank of the job."""
        return OspMember(job, rank, settings_of(job, OspSettings))

    def keeper(self, job: Job) -> OspKeeper:
        """A new `OspKeeper`: what a node that completes the ranks' sums remembers between steps."""
        return OspKeeper(job)


SYNCHRONIZATION = Osp()
