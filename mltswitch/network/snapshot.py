"""Runs on disk: a snapshot of one under way, from which it goes on, and what a finished one came to.

Both are numpy's archives without pickles. A run is told apart by a digest of all that it is made of.
"""

import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from mltswitch.errors import UserInputError
from mltswitch.network.results import Run
from mltswitch.network.scenario import Scenario
from mltswitch.network.simulation import Ground, staged
from mltswitch.outputs import HIDDEN
from mltswitch.queueing.jit import source_key
from mltswitch.version import __version__

if TYPE_CHECKING:
    from mltswitch.network.world import World

Arrays = Mapping[str, NDArray[Any]]
_DIGEST: Final = "digest"
_DOCUMENT: Final = "document"


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
        made = (
            network.ports,
            network.pools_bytes,
            network.switch_rules.answer_classes,
            flows,
            getattr(flows, "steps", ()),
        )
        plays.append(_digest(common, *made, play.transport, play.sprays, has_depths))
    return common, plays


def _digest(*parts: object) -> str:
    """Of what has the same `repr` wherever it is equal."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def save_world(path: Path, digest: str, world: "World") -> None:
    """Write a snapshot in the place of an earlier one, or nothing."""
    tables = {name: table.view(np.uint8) for name, table in world.all_tables().items()}
    _write(path, {_DIGEST: np.array(digest), **tables})


def load_world(path: Path, digest: str, world: "World") -> bool:
    """Bring a world that has not begun to where a snapshot was made; whether there is one.

    Raises:
        UserInputError: It is of another run or version, or no snapshot.
    """
    if not path.exists():
        return False
    arrays = _read(path)
    if str(arrays.pop(_DIGEST, "")) != digest:
        raise UserInputError(
            "is a snapshot of another scenario or version", where=str(path), hint="--restart begins anew"
        )
    world.restore(arrays)
    return True


def save_run(path: Path, run: Run) -> None:
    """Write what a run came to."""
    arrays: dict[str, NDArray[Any]] = {}
    document: dict[str, Any] = {}
    for name, adapter in _adapters().items():
        value = getattr(run, name)
        if adapter is None:
            # numpy keeps objects as pickles alone, and texts of equal length without.
            columns = {key: each.astype(str) if each.dtype == object else each for key, each in value.items()}
            arrays |= {f"{name}.{key}": each for key, each in columns.items()}
            document[name] = [[key, each.dtype == object] for key, each in value.items()]
        else:
            document[name] = adapter.dump_python(value, mode="json")
    _write(path, {_DOCUMENT: np.array(json.dumps(document)), **arrays})


def load_run(path: Path) -> Run:
    """Read what a run came to; raises UserInputError where the file is none of ours."""
    arrays = _read(path)
    try:
        document = json.loads(str(arrays[_DOCUMENT]))
        values: dict[str, Any] = {}
        for name, adapter in _adapters().items():
            if adapter is None:
                values[name] = {
                    key: arrays[f"{name}.{key}"].astype(object) if is_text else arrays[f"{name}.{key}"]
                    for key, is_text in document[name]
                }
            else:
                values[name] = adapter.validate_python(document[name])
        return Run(**values)
    except (KeyError, ValueError, TypeError):
        raise _damaged(path) from None


def _adapters() -> dict[str, TypeAdapter[Any] | None]:
    """How each field of a run is written; None: columns, as they are."""
    hints = get_type_hints(Run)
    columns = get_type_hints(Run)["flows"]
    return {
        each.name: None if hints[each.name] == columns else TypeAdapter(hints[each.name])
        for each in fields(Run)
    }


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except OSError as error:
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise _damaged(path) from None


def _damaged(path: Path) -> UserInputError:
    return UserInputError("is no state of a run", where=str(path), hint="--restart begins anew")


def _write(path: Path, arrays: Arrays) -> None:
    hidden = path.with_name(f"{HIDDEN}{secrets.token_hex(8)}")
    try:
        with hidden.open("xb") as stream:
            np.savez(stream, allow_pickle=False, **dict(arrays))
            stream.flush()
            os.fsync(stream.fileno())
        hidden.replace(path)
    except OSError as error:
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    finally:
        hidden.unlink(missing_ok=True)
