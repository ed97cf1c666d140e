"""A lock on a device that stores nothing but its configuration: an object that no other refers to.

Its name says which operator made it, so none overwrites another's: each makes his own, and reads them all
then. The second operator sees the object of the first, however long reading takes. The description of a port
would not do: the second operator would overwrite the first one's, and both would have read their own.
"""

import re
import time
from typing import Final

from mltswitch.targets.base import Claim, Lock, Step

_SIGN: Final = "mlt-"
"""No object of a plan begins so."""
_NAME: Final = re.compile(rf"(?<!\S){_SIGN}([0-9a-f]{{8}})-([0-9a-f]{{8}})-?([A-Za-z0-9-]*)(?!\S)")
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_NAME: Final = 31
"""Of a class of FASTPATH; Enterprise SONiC takes 32 characters."""


def configuration_lock(query: str, make: str, remove: str) -> Lock:
    """The lock whose object is shown by `query`, and made and removed by these lines with `{}` for its name.

    The operator's name is cut to fit the object's name; clocks of operators' machines tell the claim's age.
    """

    def named(answer: str) -> dict[str, Claim]:
        matches = _NAME.finditer(answer)
        return {match[0]: Claim(match[1], match[3], int(match[2], 16)) for match in matches}

    def read(answer: str) -> tuple[int, tuple[Claim, ...]]:
        return int(time.time()), tuple(named(answer).values())

    def take(claim: Claim, _answer: str) -> tuple[Step, ...]:
        name = f"{_SIGN}{claim.owner}-{claim.since:08x}-{_NO_WORD.sub('-', claim.who)}"
        return (Step(make.format(name[:_LONGEST_NAME])),)

    def release(answer: str, owner: str) -> tuple[Step, ...]:
        names = (name for name, claim in named(answer).items() if claim.owner == owner)
        return tuple(Step(remove.format(name)) for name in names)

    return Lock(query, read, take, release, _NAME)
