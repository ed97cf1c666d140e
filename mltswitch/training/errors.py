"""What can go wrong with a training job: each error names the node, and what it did or did not do."""

import re
import sys
from typing import ClassVar, Final

from mltswitch.errors import MltswitchError, printable

MOST_REASON: Final = 150
"""Characters of what the others hear of an exception."""
EXPLAINING_SECONDS: Final = 0.5
"""For the goodbye of a node that is gone, which may blame another: it may come behind what breaks with it."""


class TrainingError(MltswitchError):
    """Base of what ends a job on every node; never raised itself."""

    exit_code: ClassVar[int] = 7


class NodeLostError(TrainingError):
    """A rank or a server has died, left, or cannot be reached."""


class NodeLateError(TrainingError):
    """A rank or a server has not done its part of an exchange in time."""


class JobMismatchError(TrainingError):
    """Nodes disagree on the model or on a setting of the job."""


def anew(error: BaseException) -> BaseException:
    """The same error again: what is raised must not keep the frames of whoever was told before."""
    if isinstance(error, MltswitchError):
        return type(error)(error.what, where=error.where, expected=error.expected, hint=error.hint)
    return error


_GOODBYES: Final = {kind.__name__: kind for kind in (NodeLostError, NodeLateError, JobMismatchError)}
_SAID: Final = re.compile(rf"\b({'|'.join(_GOODBYES)}): ((?:rank|server) \d[^:]*): (.*)", re.DOTALL)
"""In a reason: kind, node and problem of a goodbye."""


def goodbye_of(error: TrainingError) -> str:
    """Why the job is over at a node, as `cause_of` at the other nodes understands it."""
    return f"{type(error).__name__}: {error}"


def cause_of(reason: str) -> TrainingError | None:
    """The error in the reason that a node gave as it left the job; None: the reason tells of none."""
    said = _SAID.search(reason)
    return None if said is None else _GOODBYES[said[1]](said[3], where=said[2])


def ending_of(error: BaseException) -> str:
    """What the others hear of an exception that ends a node: a printable line."""
    return printable(" ".join(f"{type(error).__name__}: {error}".split()).rstrip(":"))[:MOST_REASON]


def ending_of_process() -> str:
    """The same of the exception that ends this process, for `atexit`; empty: there is none."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return "" if error is None or hasattr(sys, "ps1") else ending_of(error)
