"""How long and from which seed to simulate."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """The same settings give the same figures; the same seed gives two thresholds the same arrivals."""

    packets: int = 4_000_000
    """Offered packets of all queues together that are counted, after the warm-up."""
    seed: int = 1
    replications: int = 16
    """Independent runs that the packets are divided into; the confidence intervals come from their spread."""
    warmup_share: float = 0.1
    """Packets sent before counting begins, as a share of those counted, in each replication."""
