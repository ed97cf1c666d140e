"""How fast a peer is sent to, decided by round trips: the rate control of MLT, section 4.2.3, made of TIMELY.

The rule (MLT; where it is silent, Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter",
SIGCOMM 2015, algorithm 1). Of each round trip, and of the gradient, a moving average of the differences
between successive ones over the base round trip:

- below T_low: rate + alpha;
- above T_high: rate · (1 - beta · (1 - T_high / round trip)), whatever the gradient. MLT's text lets
  a falling round trip above T_high mean both an increase and a decrease; TIMELY decreases;
- between them, not rising: rate + alpha (MLT says so of a falling one, TIMELY of a constant one as well);
- between them, rising, of which MLT says nothing: rate · (1 - beta · gradient), as TIMELY does;
- no step takes more than half of the rate, as in the code that TIMELY's authors published;
- several increases in a row are followed by larger ones (TIMELY's hyperactive increase) where the settings
  say so; MLT has none.

What the rule does not promise: between the thresholds TIMELY has no one point at which it rests, and flows
that meet there keep the shares that they have (Zhu et al., "ECN or Delay", CoNEXT 2016); below and above,
steps add and divide, and shares grow equal.

The papers' network cards stamp packets; a process on a busy host sees round trips that are 0.1 to 1 ms too
long whenever it, or the peer, did not run. Therefore `RateSettings.for_network` answers once per round trip
to the *least* of the round trips seen meanwhile (a queue delays every packet, a scheduler only some), keeps
its thresholds a host's noise above the base, and learns the base where it is longer than was said: as the
least of all round trips, those of the control channel among them (`Timely.base_measured`), which no
gradient's queue delays.

They are also heard less often, and least often by the slowest senders. What an incast leaves behind is a few
senders at a fraction of an idle line; by alpha alone they would be done before they are back at its rate. So
below T_low `for_network` adds a share of the rate to a low one where that is more than alpha, and does not
wait for all of its samples for ever: one below T_low is enough to know that there is no queue.
"""

from dataclasses import dataclass
from typing import Final, Self

from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

USER_SPACE_ROUND_TRIP_NS: Final = 200_000
"""Two idle hosts of one fabric, from process to process through their kernels, nobody polling."""
HOST_NOISE_NS: Final = 500_000
"""What scheduling adds even to the least of a few round trips."""
BASE_WINDOW_NS: Final = 5 * NANOSECONDS
"""A base round trip is forgotten when it has not been seen for one to two of these: routes change."""
LEAST_KEPT: Final = 0.5
"""Of the rate, by one decrease."""
INCREASE_SHARE: Final = 0.01
"""alpha over the line rate: 100 round trips from nothing to all, or 24 with the hyperactive increase."""
GROWTH: Final = 1 / 4
"""Of the rate, by one increase,"""
GROWTH_BELOW: Final = 1 / 4
"""where it is less than this share of the cap: a few senders that always grew so would not come to share
equally."""
LOW_SHARE: Final = 1 / 4
"""Of a full queue, which is no congestion yet."""
FLOOR_SHARE: Final = 0.001
PACKET_A_MILLISECOND_BPS: Final = 12_000_000
"""1,500 bytes: a sender so slow that it hears of the network once in a while only can hardly grow again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSettings:
    """Parameters of one `Timely`; raises ValueError for those that contradict each other."""

    cap_bps: float
    """Where a flow starts, and what it never exceeds: the line rate, or the gradients' share of it."""
    floor_bps: float
    base_round_trip_ns: int
    """Without any queue; the unit of the gradient (TIMELY's minRTT), unless `gradient_unit_ns` is longer."""
    low_ns: int
    """T_low."""
    high_ns: int
    """T_high."""
    increase_bps: float
    """alpha, in TIMELY δ."""
    decrease: float
    """beta."""
    gradient_weight: float = 0.02
    """Of a new difference in the moving average; TIMELY's alpha, of which its authors' code says 0.02."""
    gradient_unit_ns: int = 0
    """Where noise exceeds the base round trip, a rise that it explains must not look steep."""
    hyperactive_after: int = 5
    """So many increases in a row come first."""
    hyperactive_factor: float = 1.0
    """Times alpha from then on; 1: never hyperactive."""
    growth: float = 0.0
    """Of the rate, which below T_low one increase adds at least, while the rate is far below the cap."""
    samples: int = 1
    """Round trips of which the least counts; where it is below T_low, no more than come in as many T_low."""
    once_per_round_trip: bool = False
    """Wait for a round trip, too, until the next step; else every `samples` acknowledgements make a step."""
    learns_base: bool = False
    """Base and thresholds move up where the network's own base is longer than the one given here."""

    def __post_init__(self) -> None:
        if not 0 < self.floor_bps <= self.cap_bps:
            raise ValueError(f"a floor of {self.floor_bps} bit/s below a cap of {self.cap_bps} bit/s")
        if not 0 < self.base_round_trip_ns <= self.low_ns < self.high_ns:
            raise ValueError(
                f"base round trip {self.base_round_trip_ns} ns, T_low {self.low_ns} ns,"
                f" T_high {self.high_ns} ns: each should lie above the one before"
            )
        if self.increase_bps <= 0 or not 0 < self.decrease <= 1 or not 0 < self.gradient_weight <= 1:
            raise ValueError(
                f"alpha {self.increase_bps} bit/s, beta {self.decrease}, weight {self.gradient_weight}:"
                " expected above 0, and the last two at most 1"
            )
        if not 0 <= self.growth <= 1:
            raise ValueError(f"growth {self.growth}: expected 0 to 1")
        if self.samples < 1 or self.hyperactive_after < 1 or self.hyperactive_factor < 1:
            raise ValueError("samples, hyperactive_after and hyperactive_factor are 1 or more")

    @classmethod
    def paper_100g(cls) -> Self:
        """MLT, section 4.2.3: T_low 12.5 µs, T_high 125 µs, alpha 40 Mbit/s, beta 0.8.

        Each acknowledgement makes a step. The base round trip is not in the paper; T_low stands for it. Only
        hosts that bypass the kernel have round trips like these.
        """
        return cls(
            cap_bps=100e9,
            floor_bps=100e9 * FLOOR_SHARE,
            base_round_trip_ns=12_500,
            low_ns=12_500,
            high_ns=125_000,
            increase_bps=40e6,
            decrease=0.8,
        )

    @classmethod
    def for_network(
        cls,
        line_rate_bps: float,
        *,
        queue_bytes: int,
        base_round_trip_ns: int = USER_SPACE_ROUND_TRIP_NS,
        bottleneck_bps: float | None = None,
        cap_share: float = 1.0,
        noise_ns: int = HOST_NOISE_NS,
    ) -> Self:
        """For user space behind kernels, on a network with known queues.

        T_low lies the noise above the base, or a quarter of a full queue where that is more, T_high half-way
        from there to the round trip of a full queue, so that flows slow down before it is full, but half the
        noise above T_low at least: where queues empty faster than hosts run, round trips say nothing of them,
        flows stay at their cap, and the switch drops what is too much, unimportant packets first.

        Args:
            line_rate_bps: of the sender's own link.
            queue_bytes: where the switch begins to drop (S of a gradient class).
            base_round_trip_ns: a longer one is learned.
            bottleneck_bps: what empties that queue; None: a link like the sender's.
            cap_share: of the line rate, for gradients (the plan's `rate_cap_share`).
            noise_ns: of round trips on idle queues.
        """
        if not 0 < cap_share <= 1 or line_rate_bps <= 0 or queue_bytes < 0 or noise_ns < 1:
            raise ValueError(
                f"share {cap_share} of {line_rate_bps} bit/s, queue of {queue_bytes} B, noise {noise_ns} ns"
            )
        cap = line_rate_bps * cap_share
        drain_ns = queue_bytes * BITS_PER_BYTE / (bottleneck_bps or line_rate_bps) * NANOSECONDS
        spared_ns = max(noise_ns, round(LOW_SHARE * drain_ns))
        low_ns = base_round_trip_ns + spared_ns
        return cls(
            cap_bps=cap,
            floor_bps=max(cap * FLOOR_SHARE, min(cap / 10, PACKET_A_MILLISECOND_BPS)),
            base_round_trip_ns=base_round_trip_ns,
            low_ns=low_ns,
            high_ns=low_ns + (max(noise_ns, round(drain_ns) - spared_ns) + 1) // 2,
            increase_bps=line_rate_bps * INCREASE_SHARE,
            decrease=0.8,
            gradient_weight=0.1,
            gradient_unit_ns=low_ns,
            hyperactive_factor=5.0,
            growth=GROWTH,
            samples=4,
            once_per_round_trip=True,
            learns_base=True,
        )


class Timely:
    """A `RateController`; the module says by which rule."""

    def __init__(self, settings: RateSettings) -> None:
        self.settings = settings
        self._rate_bps = float(settings.cap_bps)
        self._gradient_ns = 0.0
        self._previous_ns: int | None = None
        self._increases = 0
        self._least_ns = 0
        self._samples = 0
        self._stepped_ns: int | None = None
        self._base = _LeastOfLately(BASE_WINDOW_NS)

    @property
    def rate_bps(self) -> float:
        """Between floor and cap."""
        return self._rate_bps

    @property
    def is_highest(self) -> bool:
        """Whether it is the cap, and a round trip has left it there."""
        return self._rate_bps >= self.settings.cap_bps and self._previous_ns is not None

    @property
    def base_round_trip_ns(self) -> int:
        """As set, or longer as learned."""
        if not self.settings.learns_base:
            return self.settings.base_round_trip_ns
        return max(self.settings.base_round_trip_ns, self._base.least)

    def base_measured(self, round_trip_ns: int, now_ns: int) -> None:
        """A round trip without the gradients' queues: on the control channel, whose class is served before.

        To be called about once a second. Without such calls a flow that begins while others fill the queue
        takes the full queue for the base.
        """
        if self.settings.learns_base and round_trip_ns > 0:
            self._base.add(round_trip_ns, now_ns)

    def acknowledged(self, round_trip_ns: int, now_ns: int) -> None:
        """Count a round trip, but not one below 1 ns: the peer's word has a part in it."""
        if round_trip_ns <= 0:
            return
        if self.settings.learns_base:
            self._base.add(round_trip_ns, now_ns)
        self._least_ns = min(self._least_ns, round_trip_ns) if self._samples else round_trip_ns
        self._samples += 1
        if self._stepped_ns is None:
            self._stepped_ns = now_ns
        if self._samples < self.settings.samples and not self._is_long_idle(now_ns - self._stepped_ns):
            return
        if self.settings.once_per_round_trip and now_ns - self._stepped_ns < self._least_ns:
            return
        self._step(self._least_ns)
        self._samples = 0
        self._stepped_ns = now_ns

    @property
    def _learned_ns(self) -> int:
        """What base and thresholds have moved up by."""
        return self.base_round_trip_ns - self.settings.base_round_trip_ns

    @property
    def _low_ns(self) -> int:
        return self.settings.low_ns + self._learned_ns

    def _is_long_idle(self, waited_ns: int) -> bool:
        """Whether a sender that hears too seldom for more samples knows enough to grow."""
        patience_ns = self.settings.samples * self._low_ns
        return self._least_ns < self._low_ns and waited_ns >= patience_ns

    def _step(self, round_trip_ns: int) -> None:
        settings = self.settings
        difference_ns = round_trip_ns - (round_trip_ns if self._previous_ns is None else self._previous_ns)
        self._previous_ns = round_trip_ns
        weight = settings.gradient_weight
        self._gradient_ns = (1 - weight) * self._gradient_ns + weight * difference_ns
        high_ns = settings.high_ns + self._learned_ns
        if round_trip_ns > high_ns:
            self._decrease(1 - high_ns / round_trip_ns)
        elif round_trip_ns < self._low_ns:
            has_fallen_low = self._rate_bps < GROWTH_BELOW * settings.cap_bps
            self._increase(settings.growth * self._rate_bps if has_fallen_low else 0.0)
        elif self._gradient_ns <= 0:
            self._increase(0.0)
        else:
            self._decrease(self._gradient_ns / max(self.base_round_trip_ns, settings.gradient_unit_ns))

    def _increase(self, least_bps: float) -> None:
        settings = self.settings
        is_hyperactive = self._increases >= settings.hyperactive_after
        self._increases += 1
        step_bps = settings.increase_bps * (settings.hyperactive_factor if is_hyperactive else 1)
        self._rate_bps = min(self._rate_bps + max(step_bps, least_bps), settings.cap_bps)

    def _decrease(self, severity: float) -> None:
        self._increases = 0
        kept = max(1 - self.settings.decrease * severity, LEAST_KEPT)
        self._rate_bps = max(self._rate_bps * kept, self.settings.floor_bps)


class _LeastOfLately:
    """The least of the samples of one to two windows, in constant memory."""

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._began_ns: int | None = None
        self._current: int | None = None
        self._previous: int | None = None

    def add(self, sample: int, now_ns: int) -> None:
        if self._began_ns is None or now_ns - self._began_ns >= self._window_ns:
            self._began_ns, self._previous, self._current = now_ns, self._current, None
        self._current = sample if self._current is None else min(self._current, sample)

    @property
    def least(self) -> int:
        """0 before the first sample."""
        return min((value for value in (self._current, self._previous) if value is not None), default=0)
