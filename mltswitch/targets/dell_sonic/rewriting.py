"""What a port makes of code points as packets arrive: a policy-map that sets background's, bound to the port.

Class-maps, like all objects of ours, are named by what they hold: a code point of IPv4 and IPv6 packets, or
none, which is any packet (FBS), and then nothing but a description.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mltswitch.targets.common import Key
from mltswitch.targets.dell_sonic.names import PREFIX, rewriting_name
from mltswitch.targets.state import every_dscp_but

_NAMED: Final[Mapping[str, int]] = {
    **{f"cs{n}": 8 * n for n in range(1, 8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    **dict(zip(("default", "ef", "voice-admit"), (0, 46, 44), strict=True)),
}
"""Code points that a switch shows by name where it matches them."""
_CLASS: Final = f"{PREFIX}class-"
_ANY: Final = "any"
_SET: Final = re.compile(rf"class {_CLASS}(any|[0-9]{{1,2}}) priority 10/set dscp ([0-9]{{1,2}})")


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Which code points of packets arriving at a port become which."""

    dscps: tuple[int, ...] = ()
    background_dscp: int = 0

    @property
    def name(self) -> str:
        """Name of its policy-map; empty where nothing is rewritten."""
        return rewriting_name(self.dscps, self.background_dscp) if self.dscps else ""

    def lines(self) -> Iterator[Key]:
        """Lines of its class-maps and of its policy-map."""
        is_all = self.dscps == every_dscp_but(self.background_dscp)
        for match in (_ANY,) if is_all else self.dscps:
            words = f"description {_ANY}" if is_all else f"match dscp {match}"
            yield (f"class-map {_CLASS}{match} match-type fields match-all",), words
            path = (f"policy-map {self.name} type qos", f"class {_CLASS}{match} priority 10")
            yield path, f"set dscp {self.background_dscp}"


def rewriting_of(policy: Iterable[Key], class_maps: Iterable[Key]) -> tuple[Rewriting, tuple[str, ...]]:
    """Inverse of `Rewriting.lines`, and what of the policy-map and of its class-maps is otherwise."""
    flows = [match for path, words in policy if (match := _SET.fullmatch("/".join((*path[1:], words))))]
    background = min((int(match[2]) for match in flows), default=0)
    matches = [match[1] for match in flows if int(match[2]) == background]
    dscps = tuple(sorted(int(match) for match in matches if match != _ANY))
    rewriting = Rewriting(every_dscp_but(background) if _ANY in matches else dscps, background)
    expected = _said(rewriting.lines())
    openers = {path[0] for path, _ in rewriting.lines()}
    found = _said((*policy, *(line for line in class_maps if line[0][0] in openers)))
    return rewriting, (
        *(f"no {words}" for words in sorted(expected - found)),
        *sorted(found - expected),
    )


def _said(lines: Iterable[Key]) -> set[str]:
    """Lines with their places, whichever name the policy-map has."""
    return {": ".join((*(path[1:] or path), words)) for path, words in lines}


def with_number(words: str) -> str:
    """`match dscp cs6` as `match dscp 48`; any other line as it is."""
    first, _, name = words.rpartition(" ")
    return f"{first} {_NAMED[name]}" if first == "match dscp" and name in _NAMED else words
