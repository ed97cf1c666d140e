"""The console script, and `python -m mltswitch`."""

import gc
import signal
import sys
from typing import Final

ALLOCATIONS_BETWEEN_COLLECTIONS: Final = 50_000
"""Python's 700 cost a third of the time where a document of a million values is read, planned and written."""


def main() -> None:
    """Run one command; Ctrl-C ends it with 130 from the first import on, and no more once it has ended."""
    gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS)
    try:
        from mltswitch.cli import main as run  # noqa: PLC0415  (most of the time goes into imports)

        run()
    except KeyboardInterrupt:
        sys.stderr.write("\nmltswitch: interrupted\n")
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # CPython ends by the signal itself where it once left a text that was run as code, as dataclasses
        # run some while they are imported; it forgets that as it runs another.
        exec("")  # noqa: S102


if __name__ == "__main__":
    main()
