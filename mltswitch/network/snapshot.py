"""Snapshots of runs, from which they go on; a run that has ended is read from its last one.

They are numpy's archives without pickles. A run is told apart by a digest of all that it is made of.
"""

import hashlib
import os
import secrets
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from mltswitch.documents import open_regular
from mltswitch.errors import UserInputError
from mltswitch.network.scenario import Scenario
from mltswitch.network.simulation import Ground, staged
from mltswitch.outputs import HIDDEN
from mltswitch.queueing.jit import source_key
from mltswitch.version import __version__

if TYPE_CHECKING:
    from mltswitch.network.world import World

UNDER_WAY: Final = f"{HIDDEN}snapshot-"
"""How names of snapshots begin while they are written."""


def digests(scenario: Scenario, ground: Ground, *, has_depths: bool) -> tuple[str, list[str]]:
    """A digest of what all runs have in common, and one for each play, whatever its seed.

    The flows of one seed stand for all files that a workload is made of.
    """
    common = _digest(
        __version__,
        np.__version__,
        source_key(Path(__file__).parent),
        scenario.model_copy(update={"seeds": (), "plays": ()}),
        ground.topology.switches,
        ground.topology.hosts,
    )
    plays = []
    for place, play in enumerate(scenario.plays):
        network, flows = staged(scenario, ground, play, f"transports[{place}]", 0)
        rules = network.switch_rules
        made = (
            flows.steps,
            flows.rounds,
            network.ports,
            network.pools_bytes,
            rules.answer_classes,
            rules.gradients,
            rules.discipline,
            flows,
        )
        plays.append(_digest(common, *made, play.transport, play.sprays, has_depths))
    return common, plays


def _digest(*parts: object) -> str:
    """Of what has the same `repr` wherever it is equal."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def save_world(path: Path, digest: str, world: "World") -> None:
    """Write a snapshot in the place of an earlier one, or nothing."""
    tables = {name: table.view(np.uint8) for name, table in world.all_tables().items()}
    hidden = path.with_name(f"{UNDER_WAY}{secrets.token_hex(8)}")
    try:
        with hidden.open("xb") as stream:
            np.savez(stream, allow_pickle=False, digest=np.array(digest), **tables)
            stream.flush()
            os.fsync(stream.fileno())
        hidden.replace(path)
    except OSError as error:
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    finally:
        hidden.unlink(missing_ok=True)


def load_world(path: Path, digest: str, world: "World") -> None:
    """Bring a world that has not begun to where a snapshot was made, if there is one.

    Raises:
        UserInputError: It is of another run or version, or no snapshot.
    """
    if not path.exists():
        return
    problem = "is no snapshot of a simulation"
    try:
        with open_regular(path) as stream:
            if os.fstat(stream.fileno()).st_uid != os.geteuid():
                # Its numbers become addresses of memory.
                raise UserInputError("belongs to another user", where=str(path), hint="--restart begins anew")
            with np.load(stream, allow_pickle=False) as archive:
                tables = dict(archive)
        if str(tables.pop("digest", "")) == digest:
            world.restore(tables)
            return
        problem = "is a snapshot of another scenario or version"
    except (ValueError, EOFError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error):
        pass
    raise UserInputError(problem, where=str(path), hint="--restart begins anew")
