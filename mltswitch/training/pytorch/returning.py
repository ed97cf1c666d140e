"""Restarts a rank: it takes the job from a file, and the ranks' common state from another rank.

meeting = "file:///shared/run-7"
returns = returning(meeting, rank)
if returns is None:
    dist.init_process_group("gloo")
else:  # the others' process group goes on without this rank
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
ddp = DistributedDataParallel(model, broadcast_buffers=False)
with MltState(ddp, continues=True, optimizer=optimizer, rendezvous=meeting, returns=returns) as state:
    ddp.register_comm_hook(state, mlt_hook)
    for step in range(state.first_step, steps):
        ...
"""

import io
import pickle
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from mltswitch.errors import UserInputError
from mltswitch.hostagent.group import FILE, was_there
from mltswitch.outputs import write_atomically
from mltswitch.training.errors import JobMismatchError
from mltswitch.training.job import Job
from mltswitch.training.pytorch.start import Setup, described

Rendezvous = str | Callable[[str], list[str]] | None


def returning(rendezvous: str, rank: int) -> int | None:
    """The argument `returns` of `MltState`: this rank's number if it took part before; None: the job begins.

    Raises UserInputError for a rendezvous that is no file.
    """
    return rank if was_there(rendezvous, rank) and _job_file(rendezvous).exists() else None


class _Kept(BaseModel):
    """The file beside that by which all have met."""

    job: Job
    model: tuple[str, ...]
    """A line for each parameter."""
    held: tuple[str, ...]
    """Names of what ranks hold alike, and give to one that returns."""


def held_of(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer | None, others: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """The objects whose state ranks share, by name. Raises UserInputError for one without `state_dict`."""
    for name, each in (others or {}).items():
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            problem = f"is a {type(each).__name__}, without state_dict and load_state_dict"
            raise UserInputError(problem, where=f"carries.{name}")
    return {"model": module, **({} if optimizer is None else {"optimizer": optimizer}), **(others or {})}


def keep_job(
    job: Job, rendezvous: Rendezvous, named: Mapping[str, torch.nn.Parameter], held: Mapping[str, Any]
) -> None:
    """Write the job to a file beside the rendezvous, for ranks that come back. Raises UserInputError."""
    if job.continues and isinstance(rendezvous, str) and rendezvous.startswith(FILE):
        kept = _Kept(job=job, model=tuple(described(named)), held=tuple(held))
        write_atomically(_job_file(rendezvous), kept.model_dump_json())


def come_back(
    rendezvous: Rendezvous, options: Mapping[str, Any], prepare: Callable[..., Setup], held: Mapping[str, Any]
) -> tuple[Setup, Job]:
    """A restarted rank's own setup, and the job of the other ranks, which its setup must fit.

    Args:
        options: those of `make_job`.
        prepare: called with options; makes the rank's setup.
        held: the objects whose state it takes from another rank.

    Raises UserInputError.
    """
    kept = _kept(rendezvous)
    setup = prepare(options={**options, "world": kept.job.world, "ranks": kept.job.ranks})
    for own, theirs in zip_longest(described(setup.named), kept.model, fillvalue="none"):
        if own != theirs:
            raise UserInputError(f"has {own}", where="model", expected=f"{theirs}, as the other ranks have")
    if {*held} != {*kept.held}:
        problem = f"the other ranks hold {', '.join(kept.held)}, this one {', '.join(held)}"
        raise UserInputError(problem, where="optimizer, carries", expected="the same on all ranks")
    return setup, kept.job


def _kept(rendezvous: Rendezvous) -> _Kept:
    if not isinstance(rendezvous, str) or not rendezvous.startswith(FILE):
        raise UserInputError("keeps no job", where="rendezvous", expected="file:///PATH, on all ranks")
    path = _job_file(rendezvous)
    try:
        return _Kept.model_validate_json(path.read_bytes())
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        hint = "all ranks start with `continues` and this rendezvous"
        raise UserInputError(problem, where=str(path), hint=hint) from None
    except (ValidationError, UserInputError):
        raise UserInputError("is no job of this version", where=str(path)) from None


def bytes_of(held: Mapping[str, Any]) -> NDArray[np.uint8]:
    """The state that ranks share at the beginning of a step, as bytes for `load_bytes`."""
    file = io.BytesIO()
    torch.save({name: each.state_dict() for name, each in held.items()}, file)
    return np.frombuffer(file.getbuffer(), np.uint8)


def load_bytes(data: NDArray[np.uint8], held: Mapping[str, Any]) -> None:
    """Load the shared state that another rank made by `bytes_of`. Raises JobMismatchError for bytes that are
    no such state."""
    try:
        states = torch.load(io.BytesIO(data.tobytes()), map_location="cpu", weights_only=True)
        for name, each in held.items():
            each.load_state_dict(states[name])
    except (RuntimeError, ValueError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        problem = f"does not fit: {shorten(str(error) or type(error).__name__, 150, placeholder=' …')}"
        hint = "states are tensors and plain numbers"
        raise JobMismatchError(problem, where="the state of another rank", hint=hint) from None


def _job_file(rendezvous: str) -> Path:
    return Path(rendezvous.removeprefix("file://") + ".mltswitch")
