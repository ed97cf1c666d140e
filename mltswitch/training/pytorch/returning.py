"""What a rank needs that was started again: the job, from a file, and what the others hold alike.

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
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from mltswitch.errors import UserInputError
from mltswitch.hostagent.group import FILE, was_there
from mltswitch.outputs import write_atomically
from mltswitch.training.errors import JobMismatchError
from mltswitch.training.job import Job
from mltswitch.training.pytorch.start import Setup

Rendezvous = str | Callable[[str], list[str]] | None


def returning(rendezvous: str, rank: int) -> int | None:
    """For the argument `returns`: this rank, where it has been there before; None: the job begins.

    Raises UserInputError for what is no file.
    """
    return rank if was_there(rendezvous, rank) and _job_file(rendezvous).exists() else None


def keep_job(job: Job, rendezvous: Rendezvous) -> None:
    """For ranks that come back, beside the file by which all have met. Raises UserInputError."""
    if job.continues and isinstance(rendezvous, str) and rendezvous.startswith(FILE):
        write_atomically(_job_file(rendezvous), TypeAdapter(Job).dump_json(job).decode())


def come_back(
    rendezvous: Rendezvous, options: Mapping[str, Any], prepare: Callable[..., Setup]
) -> tuple[Setup, Job]:
    """What this rank makes of its model, and the job of the others, which its own is to fit.

    Args:
        rendezvous: that of all ranks.
        options: as `make_job` has them.
        prepare: with options, what this rank can find by itself.

    Raises UserInputError.
    """
    job = _kept_job(rendezvous)
    setup = prepare(options={**options, "world": job.world, "ranks": job.ranks})
    pairs = enumerate(zip_longest(setup.job.layers, job.layers))
    other = next((at for at, (own, theirs) in pairs if own != theirs), None)
    if other is not None:
        problem = f"differs from that of the other ranks in layer {other} of {len(job.layers)}"
        raise UserInputError(problem, where="model", expected="the same")
    return setup, job


def _kept_job(rendezvous: Rendezvous) -> Job:
    if not isinstance(rendezvous, str) or not rendezvous.startswith(FILE):
        raise UserInputError("keeps no job", where="rendezvous", expected="file:///PATH, on all ranks")
    path = _job_file(rendezvous)
    try:
        return TypeAdapter(Job).validate_json(path.read_bytes())
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        hint = "all ranks start with `continues` and this rendezvous"
        raise UserInputError(problem, where=str(path), hint=hint) from None
    except (ValidationError, UserInputError):
        raise UserInputError("is no job of this version", where=str(path)) from None


def bytes_of(module: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> NDArray[np.uint8]:
    """What ranks hold alike when a step begins."""
    file = io.BytesIO()
    states: dict[str, Any] = {"model": module.state_dict()}
    if optimizer is not None:
        states["optimizer"] = optimizer.state_dict()
    torch.save(states, file)
    return np.frombuffer(file.getbuffer(), np.uint8)


def load_bytes(
    data: NDArray[np.uint8], module: torch.nn.Module, optimizer: torch.optim.Optimizer | None
) -> None:
    """The other end. Raises UserInputError where one has an optimizer and the other has none,
    JobMismatchError for what is no such state."""
    try:
        states = torch.load(io.BytesIO(data.tobytes()), map_location="cpu", weights_only=True)
        has_state = "optimizer" in states
        if has_state is (optimizer is None):
            who = "the others have one, and this rank" if has_state else "this rank has one, and another"
            raise UserInputError(f"is missing: {who} gives none", where="optimizer")
        module.load_state_dict(states["model"])
        if optimizer is not None:
            optimizer.load_state_dict(states["optimizer"])
    except (RuntimeError, ValueError, KeyError, TypeError, EOFError) as error:
        problem = f"does not fit: {str(error).splitlines()[0]:.150}"
        raise JobMismatchError(problem, where="the state that another rank has given") from None


def _job_file(rendezvous: str) -> Path:
    return Path(rendezvous.removeprefix("file://") + ".job")
