"""The console script, and `python -m mltswitch`."""

import signal
import sys


def main() -> None:
    """Run one command; Ctrl-C ends it with 130 from the first import on, and no more once it has ended."""
    try:
        from mltswitch.cli import main as run  # noqa: PLC0415  (most of the time goes into imports)

        run()
    except KeyboardInterrupt:
        sys.stderr.write("mltswitch: interrupted\n")
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # CPython ends by the signal itself where it once left a text that was run as code, as dataclasses
        # run some while they are imported; it forgets that as it runs another.
        exec("")  # noqa: S102


if __name__ == "__main__":
    main()
