"""Random numbers of compiled code: one stream of the run, and hashes that are always the same."""

import numpy as np

from mltswitch.network.records import Record
from mltswitch.queueing.jit import jit

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@jit
def mixed(word: np.uint64) -> np.uint64:
    """A hash of 64 bits (the finaliser of SplitMix64)."""
    word = (word ^ (word >> _30)) * _MIX_1
    word = (word ^ (word >> _27)) * _MIX_2
    return word ^ (word >> _31)


@jit
def draw(world: Record) -> float:
    """The next random number of the simulation, uniform in [0, 1)."""
    word = world.random + _STEP
    world.random = word
    return np.int64(mixed(word) >> _11) * 2.0**-53


@jit
def tag_of(world: Record, flow_number: int, number: int) -> float:
    """Uniform in [0, 1), and always the same for one packet of one flow: how important it is."""
    word = world.tag_seed + np.uint64(flow_number) * _MIX_2 + np.uint64(number) * _STEP
    return np.int64(mixed(word) >> _11) * 2.0**-53
