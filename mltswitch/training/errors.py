"""The errors that end a training job; each names the node, and what it did or did not do."""

import re
import sys
from typing import ClassVar, Final

from mltswitch.errors import MltswitchError, printable

MOST_REASON: Final = 150
"""The most characters of an exception that other nodes are told."""
EXPLAINING_SECONDS: Final = 0.5
"""How long to wait for the goodbye of a gone node, which may blame another node and come after the first
failures."""


class TrainingError(MltswitchError):
    """Base of the errors that end a job on every node; never raised itself."""

    exit_code: ClassVar[int] = 7


class NodeLostError(TrainingError):
    """A rank or a server has died, left, or cannot be reached."""


class NodeLateError(TrainingError):
    """A rank or a server has not done its part of an exchange in time."""


class JobMismatchError(TrainingError):
    """Nodes disagree on the model or on a setting of the job."""


def anew(error: BaseException) -> BaseException:
    """A copy of an error to raise again, without the traceback frames of earlier callers."""
    if isinstance(error, MltswitchError):
        return type(error)(error.what, where=error.where, expected=error.expected, hint=error.hint)
    return error


_GOODBYES: Final = {kind.__name__: kind for kind in (NodeLostError, NodeLateError, JobMismatchError)}
_SAID: Final = re.compile(rf"\b({'|'.join(_GOODBYES)}): ((?:rank|server) \d[^:]*): (.*)", re.DOTALL)
"""In a reason: kind, node and problem of a goodbye."""


def goodbye_of(error: TrainingError) -> str:
    """The text by which a node tells others why its job is over, read by their `cause_of`."""
    return f"{type(error).__name__}: {error}"


def cause_of(reason: str) -> TrainingError | None:
    """The error described in the reason that a node gave when it left the job; None: there is none."""
    said = _SAID.search(reason)
    return None if said is None else _GOODBYES[said[1]](said[3], where=said[2])


def ending_of(error: BaseException) -> str:
    """A printable line that tells other nodes which exception has ended this node."""
    return printable(" ".join(f"{type(error).__name__}: {error}".split()).rstrip(":"))[:MOST_REASON]


def ending_of_process() -> str:
    """A printable line about the exception that ends this process, for `atexit`; empty: there is none."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return "" if error is None or hasattr(sys, "ps1") else ending_of(error)
