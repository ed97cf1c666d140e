"""`python -m mltswitch` is the console script."""

from mltswitch.cli import main

main()
