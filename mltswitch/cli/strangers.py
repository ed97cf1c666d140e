"""Lines about who came and was not let in: anybody can cause them, at any time, in whatever number."""

import select
import sys
from typing import Final

from mltswitch.cli.output import progress
from mltswitch.errors import printable

MOST_LINES: Final = 50
LONGEST_LINE: Final = 1000
"""Characters: with four bytes each less than PIPE_BUF, for which a pipe that can be written has room."""
SHORTENED: Final = "…"


class Strangers:
    """Tells of them on standard error, and never waits for whoever reads it.

    Whoever scans ports fills no log, what they say steers no terminal, and nothing stops because nobody
    reads: a line that has no room is left out.
    """

    def __init__(self) -> None:
        self._told = 0

    def tell(self, line: str) -> None:
        """One more."""
        if self._told > MOST_LINES or not _has_room():
            return
        self._told += 1
        if self._told > MOST_LINES:
            progress("more were not let in, and are not told of")
            return
        shown = printable(line)
        progress(shown if len(shown) <= LONGEST_LINE else shown[:LONGEST_LINE] + SHORTENED)


def _has_room() -> bool:
    """Whether standard error takes a line now; what is no file always does."""
    if sys.stderr is None:  # the shell closed it
        return False
    try:
        descriptor = sys.stderr.fileno()
    except (OSError, ValueError):
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return poll.poll(0) == [(descriptor, select.POLLOUT)]  # anything else: whoever read it is gone
