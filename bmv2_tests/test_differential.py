"""Random packets, tables and queue states: the switch does what the model does, byte for byte.

`MLTSWITCH_DIFFERENTIAL_PACKETS` says how many packets (`make differential` takes 100,000), and
`MLTSWITCH_DIFFERENTIAL_SEED` which ones; a difference names its seed.
"""

import os
from collections.abc import Callable
from itertools import count

from bmv2_tests.differential import PACKETS_PER_ROUND, compare, observed
from bmv2_tests.interpreted import interpreted_switch
from bmv2_tests.switch import AnySwitch, real_only
from mltswitch.p4.program import Program

PACKETS = int(os.environ.get("MLTSWITCH_DIFFERENTIAL_PACKETS", "8000"))
FIRST_SEED = int(os.environ.get("MLTSWITCH_DIFFERENTIAL_SEED", "1"))


def test_the_switch_does_what_the_model_does(
    module_switch: AnySwitch, program: Program, record_testsuite_property: Callable[[str, object], None]
) -> None:
    compared = 0
    for seed in count(FIRST_SEED):
        differences = compare(module_switch, program, seed)
        assert not differences, f"MLTSWITCH_DIFFERENTIAL_SEED={seed}: " + "\n".join(differences[:10])
        compared += PACKETS_PER_ROUND
        if compared >= PACKETS:
            break
    record_testsuite_property("packets_compared", compared)


@real_only
def test_the_interpreter_does_what_the_switch_does(module_switch: AnySwitch, program: Program) -> None:
    """Without a word from the model."""
    with interpreted_switch(len(module_switch.ends)) as interpreted:
        for seed in range(FIRST_SEED, FIRST_SEED + PACKETS // PACKETS_PER_ROUND):
            real, imitated = (observed(switch, program, seed) for switch in (module_switch, interpreted))
            assert real == imitated, f"MLTSWITCH_DIFFERENTIAL_SEED={seed}"
