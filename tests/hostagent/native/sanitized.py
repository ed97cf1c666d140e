"""A pytest plugin (`-p`): the compiled passes of another folder, and fewer examples, which are slow there."""

import os
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, settings

from mltswitch.hostagent import native

FOLDER: Final = "MLTSWITCH_TESTED_PASSES"
"""Environment variable."""
PROFILE: Final = "sanitized"
_EXAMPLES: Final = 12

if FOLDER in os.environ:
    settings.register_profile(
        PROFILE,
        max_examples=_EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    native.LIBRARY, native.PROBLEM = native.load(Path(os.environ[FOLDER]))
    if native.LIBRARY is None:
        raise ImportError(native.PROBLEM)
