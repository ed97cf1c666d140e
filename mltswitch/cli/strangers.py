"""Reports of rejected peers: anybody can cause them, at any time, in whatever number."""

import select
import sys
from typing import Final

from mltswitch.cli.output import progress
from mltswitch.errors import printable

MOST_LINES: Final = 50
LONGEST_LINE: Final = 1000
"""The most characters of a line: with four bytes each below PIPE_BUF, for which a writable pipe has room."""
SHORTENED: Final = "…"


class Strangers:
    """Reports rejected peers on standard error, and never waits for a reader.

    A port scan does not fill the log, what a peer says does not steer the terminal, and nothing stops if
    nobody reads: a line that has no room is left out.
    """

    def __init__(self) -> None:
        self._told = 0

    def tell(self, line: str) -> None:
        """Report one more rejected peer."""
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
