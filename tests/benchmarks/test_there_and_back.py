"""What a threshold passes is counted on a switch that runs the plan afterwards."""

from itertools import islice

import pytest

from benchmarks.fleet import fleet
from benchmarks.there_and_back import measure
from mltswitch.targets import targets
from switchsim import KINDS


@pytest.mark.parametrize("platform", sorted(KINDS))
def test_modules_functions_and_types_are_counted(platform: str) -> None:
    members = {entry.device.platform: entry for entry in islice(fleet(), len(targets()))}
    figures = measure(members[platform])
    assert figures["functions"] > figures["files"] > 5
    assert figures["types"] > 5
