"""Who asks: an agent's own thread must not wait for itself, and a forked child has no such thread."""

import os
import threading

from mltswitch.errors import UserInputError
from mltswitch.hostagent.errors import CancelledError

_here = threading.local()


def enter_engine() -> None:
    """This thread is an agent's from now on: all that it calls of the user's runs here."""
    _here.is_engine = True


def refuse_to_wait(what: str) -> None:
    """Raise UserInputError in an agent's own thread, which would wait for ever."""
    if getattr(_here, "is_engine", False):
        raise UserInputError(
            f"{what} in the agent's own thread would never end",
            hint="what the agent calls of yours returns at once: wait in a thread of your own",
        )


def check_process(process: int) -> None:
    """Raise CancelledError in a child of the process that made an agent: its thread is not there."""
    if os.getpid() != process:
        raise CancelledError("the agent is of the process that forked this one: make another one here")
