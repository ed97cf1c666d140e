"""The version of mltswitch, which every room takes from here: the package itself stands above all rooms."""

from typing import Final

__version__: Final = "0.1.0.dev0"
