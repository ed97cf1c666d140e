"""Qdiscs of others, said again as tc takes them, so that what a push replaced can come back.

Options by their names in tc's JSON. What iproute2 7.1 prints for these kinds is here (tc/q_*.c); a qdisc with
any other option has no way back.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from mltswitch.targets.linux.answers import Qdisc

_COUNT: Final = ""
_CODEL_TIME: Final = "codel"
"""Microseconds, cut to whole units of 1,024 ns (codel.h, CODEL_SHIFT): one more gives the same unit again."""
_FIXED: Final = None
"""Printed, but no option."""
_CODEL: Final = {"limit": _COUNT, "target": _CODEL_TIME, "interval": _CODEL_TIME, "ce_threshold": _CODEL_TIME}
_OPTIONS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "noqueue": {},
    "mq": {},
    "pfifo_fast": {"bands": _FIXED, "priomap": _FIXED, "multiqueue": _FIXED},
    "pfifo": {"limit": _COUNT},
    "bfifo": {"limit": _COUNT},
    "pfifo_head_drop": {"limit": _COUNT},
    "codel": _CODEL,
    "fq_codel": _CODEL | dict.fromkeys(("flows", "quantum", "memory_limit", "drop_batch"), _COUNT),
    "fq": {
        **dict.fromkeys(("limit", "flow_limit", "buckets", "orphan_mask", "quantum"), _COUNT),
        **dict.fromkeys(("initial_quantum", "bands", "priomap", "weights"), _COUNT),
        **dict.fromkeys(("maxrate", "defrate", "low_rate_threshold"), "bps"),
        **dict.fromkeys(("refill_delay", "ce_threshold", "horizon", "offload_horizon"), "us"),
        "timer_slack": "ns",
    },
}
"""Kind → option → unit that tc expects behind the number; `bps` are bytes a second there (tc(8), RATES)."""
_FLAGS: Final[Mapping[str, tuple[bool | None, str]]] = {
    "ecn": (True, "ecn"),
    "pacing": (False, "nopacing"),
    "horizon_cap": (None, "horizon_cap"),
    "horizon_drop": (None, "horizon_drop"),
}
"""Option that is a word alone → its value where it is set, and the word."""
_WORDS: Final = re.compile(r"[0-9A-Za-z_.: ]+")


def words_of(entry: Qdisc) -> str | None:
    """Handle, kind and options, as `tc qdisc replace dev PORT PLACE` takes them; None: not all is known."""
    options = _OPTIONS.get(entry.kind)
    if options is None:
        return None
    words = [f"handle {entry.handle} {entry.kind}"]
    if "target" in options and "ecn" not in entry.options:
        words.append("noecn")
    for name, value in entry.options.items():
        if name in _FLAGS and _FLAGS[name][0] == value:
            words.append(_FLAGS[name][1])
        elif name not in options:
            return None
        elif (unit := options[name]) is not None:
            words += [name, *_values(value, unit)]
    text = " ".join(words)
    return text if _WORDS.fullmatch(text) else None


def _values(value: object, unit: str) -> Iterator[str]:
    """Numbers with their unit; some versions before 6 print text that has one already."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, int):
            yield f"{item + 1}us" if unit == _CODEL_TIME else f"{item}{unit}"
        else:
            yield str(item)
