"""The arrays that the compiled engine reads and writes, most of them with one record for each queue.

Records replace one array for each figure: compiled code passes an array as a dozen words, a record as one.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Records = NDArray[np.void]
Record = Any
"""One element of a record array, whose fields only compiled code can read as attributes."""

FIXED, GEOMETRIC, TABLE, INCAST = range(4)
"""Kinds of arrival processes: how burst sizes are drawn, and at which distance bursts start."""

UNIMPORTANT, IMPORTANT = range(2)
"""Columns of the counters by importance, and tags of a burst."""

IDLE = -1
"""Number that stands for a queue while the line transmits nothing."""

DELAY_STEPS = 16
"""Bins of the delay histogram per packet time, for delays below 2 * DELAY_BINS / DELAY_STEPS packet times."""
DELAY_BINS = 1024
"""Bins of the delay histogram per octave, for longer delays."""
DELAY_OCTAVES = 32

SOURCE: Final = np.dtype(
    [
        ("kind", np.int64),
        ("start_gap", np.float64),
        ("train_packets", np.float64),
        ("packet_gap", np.float64),
        ("burst_packets", np.int64),
        ("senders", np.int64),
        ("jitter", np.float64),
        ("table_first", np.int64),
        ("table_last", np.int64),
        ("unimportant_share", np.float64),
        ("tag_per_burst", np.bool_),
    ],
    align=True,
)
"""An arrival process. A *train* is what one start brings: a burst, or one sender's part of an incast round.

- `start_gap`: mean time between starts, or the distance of two incast rounds; infinite without load.
- `train_packets`: size of a train, or its mean.
- `packet_gap`: time between the packets of a train; 0 is at once.
- `burst_packets`: a train is cut into bursts of this size, each with one tag.
- `table_first`, `table_last`: where the table of burst sizes holds this queue's measured distribution.
"""

SIZE: Final = np.dtype([("packets", np.int64), ("cumulative", np.float64)], align=True)
"""The record of a measured burst size: the size, and the probability of this or a smaller one."""

RULE: Final = np.dtype(
    [
        ("threshold", np.float64),
        ("maximum", np.float64),
        ("mark_probability", np.float64),
        ("average_weight", np.float64),
        ("limit", np.float64),
        ("alpha", np.float64),
        ("quantum", np.float64),
    ],
    align=True,
)
"""The record of a queue's thresholds; a field is infinite where there is no such rule.

- `maximum`: where RED's probability ends; minus infinity for a step at S.
- `quantum`: packets that deficit round robin grants per round; 0 is strict priority.
"""

STREAM: Final = np.dtype([("word", np.uint64)])
"""The record of one random number generator's state."""

QUEUE: Final = np.dtype(
    [
        ("start", np.float64),
        ("epoch", np.float64),
        ("pending_head", np.int64),
        ("pending_count", np.int64),
        ("train_head", np.int64),
        ("train_count", np.int64),
        ("head", np.int64),
        ("waiting", np.int64),
        ("changed", np.float64),
        ("average", np.float64),
        ("updated", np.float64),
        ("deficit", np.float64),
    ],
    align=True,
)
"""A queue and its source in the course of a replication.

- `start`, `epoch`: when the next train and the next incast round begin.
- `pending_…`, `train_…`: the rings of senders that are about to start and of trains under way.
- `head`, `waiting`: the ring of waiting packets.
- `changed`: when the length was last accounted for.
- `average`, `updated`: RED's average; when it last took a sample or the queue's last transmission ended.
"""

TRAIN: Final = np.dtype(
    [("time", np.float64), ("packets", np.int64), ("burst", np.int64), ("tag", np.int64)], align=True
)
"""A train under way: its next arrival, the packets left, those left of this burst, the burst's tag."""

PORT: Final = np.dtype(
    [
        ("buffer", np.float64),
        ("count_in_service", np.bool_),
        ("exponential_service", np.bool_),
        ("serving", np.int64),
        ("first", np.int64),
        ("turn", np.int64),
        ("total", np.int64),
        ("end", np.float64),
        ("now", np.float64),
    ],
    align=True,
)
"""The record of a port: its rules and its present state.

- `serving`: the queue in transmission; `end`: when that ends.
- `first`: no strict queue before this one holds packets; `turn`: whose turn it is in round robin.
- `total`: packets waiting in all queues.
- `now`: time of the last arrival.
"""

COUNTER: Final = np.dtype(
    [
        ("offered", np.int64, (2,)),
        ("dropped", np.int64, (2,)),
        ("marked", np.int64),
        ("started", np.int64),
        ("immediate", np.int64),
        ("delay_sum", np.float64),
    ],
    align=True,
)
"""The record of a queue's counters, such as `started` transmissions and those of them that found the line
idle."""
