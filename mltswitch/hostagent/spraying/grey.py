"""Whether a path loses more than the others: a test that makes no assumption about how losses come.

Packets are lost in bursts, so a binomial test of one path's losses would call sound paths grey. But on
sound paths losses come alike, however they come: in a block of packets no path can lie above the median of
the others more than half of the time. A path that does so block after block is grey. The evidence is a
cumulative sum of log-likelihood ratios (CUSUM: Page, Biometrika 41, 1954; its false alarms: Wald's bound).
"""

import math
from dataclasses import dataclass

from mltswitch.hostagent.spraying.settings import SprayingSettings

SHARE_GAIN = 1 / 4
"""Of a block in the smoothed share of loss."""


@dataclass(slots=True)
class _Chart:
    """One path's evidence."""

    packets: int = 0
    """Settled in this block."""
    lost: int = 0
    evidence: float = 0.0
    loss_share: float | None = None
    """Smoothed over blocks."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a finished block tells."""

    grey: tuple[int, ...]
    sound: tuple[int, ...]
    """No evidence is left against these."""


NO_VERDICTS = Verdicts((), ())


class GreyTest:
    """Compares the paths in use, block by block."""

    def __init__(self, paths: int, settings: SprayingSettings) -> None:
        self._settings = settings
        self._charts = [_Chart() for _ in range(paths)]
        self._compared = set(range(paths))
        good, grey = settings.bad_share_good, settings.bad_share_grey
        self._for = math.log(grey / good)
        self._against = math.log((1 - grey) / (1 - good))

    def loss_share(self, path: int) -> float | None:
        """Of the last blocks, newer ones count more; None: not known."""
        return self._charts[path].loss_share

    def leave(self, path: int) -> None:
        """The path is no longer in use."""
        self._compared.discard(path)

    def come_back(self, path: int) -> None:
        """The path is in use again, half convicted already (Lucas and Crosier: fast initial response,
        1982)."""
        self._charts[path] = _Chart(evidence=self._settings.grey_threshold / 2)
        self._compared.add(path)

    def settled(self, path: int, packets: int, lost: int) -> Verdicts:
        """More packets have settled on the path; `lost` of them is below 0 where earlier ones came late."""
        if path not in self._compared:
            return NO_VERDICTS
        chart = self._charts[path]
        chart.packets += packets
        chart.lost += lost
        full = self._settings.block_packets
        if chart.packets < full:
            return NO_VERDICTS
        counts = [self._charts[each].packets for each in self._compared]
        if min(counts) < full and sum(counts) < 4 * full * len(counts):
            return NO_VERDICTS
        return self._finish_block()

    def _finish_block(self) -> Verdicts:
        shares = {
            path: max(self._charts[path].lost, 0) / self._charts[path].packets
            for path in sorted(self._compared)
            if 2 * self._charts[path].packets >= self._settings.block_packets
        }
        for path, share in shares.items():
            chart = self._charts[path]
            if chart.loss_share is None:
                chart.loss_share = share
            chart.loss_share += SHARE_GAIN * (share - chart.loss_share)
            if len(shares) > 1:
                others = sorted(value for other, value in shares.items() if other != path)
                # Of n alike values, at most half lie above the upper median of the n - 1 others.
                is_bad = share >= others[len(others) // 2] + self._settings.excess_loss
                chart.evidence = max(chart.evidence + (self._for if is_bad else self._against), 0.0)
        for path in self._compared:
            self._charts[path].packets = self._charts[path].lost = 0
        threshold = self._settings.grey_threshold
        return Verdicts(
            tuple(path for path in shares if self._charts[path].evidence >= threshold),
            tuple(path for path in shares if self._charts[path].evidence == 0),
        )
