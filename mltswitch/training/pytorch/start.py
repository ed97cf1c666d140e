"""Checks before a job starts: what hooks cannot exchange, by name, and whether all ranks agree."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from mltswitch.errors import MOST_LISTED, MltswitchError, UserInputError, printable
from mltswitch.hostagent import AgentConfig, AgentError, Group, RanksMissingError
from mltswitch.training.axes import Synchronization, axes_of, synchronizations
from mltswitch.training.errors import JobMismatchError, NodeLateError, NodeLostError, ending_of
from mltswitch.training.job import SHORT, Job, make_job
from mltswitch.training.optimizer import check_rule
from mltswitch.training.pytorch.layout import is_dense, layers_of
from mltswitch.training.pytorch.replica import Replica
from mltswitch.training.synchronization.bsp import SYNCHRONIZATION


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """A rank's job, parameters and configuration, as it makes them from its model and options."""

    job: Job
    """The job, still without the ranks' numbers of samples."""
    kind: Synchronization
    lag: int
    named: Mapping[str, torch.nn.Parameter]
    """The model's parameters by name, in the order of its vector."""
    replica: Replica | None
    config: AgentConfig | None


def prepare(
    model: torch.nn.Module,
    rank: int,
    optimizer: torch.optim.Optimizer | None,
    example: Any,
    config: AgentConfig | str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    *,
    steps_apart: bool = False,
) -> Setup:
    """A rank's setup without help of other ranks; arguments as of `Rank`, options as of `make_job`.

    With `steps_apart` the optimizer steps each parameter separately. Raises UserInputError, MachineError.
    """
    module, name = unwrapped(model), options.get("synchronization", "bsp")
    layers, named = layers_of(module, example)
    kind = synchronizations().get(name, SYNCHRONIZATION)
    stepped = optimizer if steps_apart or _is_around(kind) else None
    parameters = unsupported_parameters(module, model, stepped)
    refuse([*parameters, *unsupported_features(model, kind, is_hooked=False)])
    kinds = {each.dtype for each in named.values()}
    is_double, is_short = torch.float64 in kinds, kinds == {torch.bfloat16}
    if options.get("wire_type") is None and is_short and not kind.needs.lone_pushes:
        options = {**options, "wire_type": SHORT}
    job = make_job(layers, element_type="float64" if is_double else "float32", **options)
    replica = None
    if optimizer is not None and name != "bsp":
        replica = Replica(job, [*named.values()], optimizer)
        job = replace(job, optimizer=replica.rule)
    kind, _ = axes_of(job)
    if replica is None and _is_around(kind):
        raise UserInputError(f"is missing: {name} works around it", where="optimizer")
    if kind.needs.lone_pushes and job.optimizer is not None:
        check_rule(job.optimizer)
    member = kind.member(job, rank)
    if replica is not None and kind.votes:
        replica.predict(member.prediction, member.lag)
    return Setup(job, kind, member.lag, named, replica, _loaded(config))


def _loaded(config: AgentConfig | str | os.PathLike[str] | None) -> AgentConfig | None:
    return config if isinstance(config, AgentConfig | None) else AgentConfig.load(os.fspath(config))


def slowest_link(
    group: dist.ProcessGroup | None, world: int, config: AgentConfig | str | os.PathLike[str] | None
) -> float | None:
    """The lowest line rate in the ranks' configurations, in bit/s; None: none has one.

    All ranks call it, each with its own file. Errors in a file are left to `prepare`.
    """
    own = None
    with suppress(MltswitchError, OSError, TypeError):
        loaded = _loaded(config)
        own = None if loaded is None else loaded.line_rate_bps
    return min((rate for rate in _gathered(own, group, world) if rate is not None), default=None)


def unwrapped(model: torch.nn.Module) -> Any:
    """The user's own module, without a DistributedDataParallel around it, compiled or not."""
    outer = getattr(model, "_orig_mod", model)
    is_wrapper = isinstance(outer, DistributedDataParallel) or _is_sharded(outer)
    return outer.module if is_wrapper else model


def _is_sharded(module: torch.nn.Module) -> bool:
    return "FullyShardedDataParallel" in type(module).__name__


def refuse(problems: Iterable[UserInputError]) -> None:
    """Raises one UserInputError that lists all problems; does nothing if there are none."""
    found = [*problems]
    if len(found) == 1:
        raise found[0]
    if found:
        lines = [str(each).rstrip(".") for each in found[:MOST_LISTED]]
        more = f"; and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
        raise UserInputError(f"cannot be exchanged: {'; '.join(lines)}{more}", where="model")


def unsupported_parameters(
    module: torch.nn.Module, ddp: Any, optimizer: torch.optim.Optimizer | None = None
) -> list[UserInputError]:
    """Trainable parameters that cannot be exchanged, or stepped by an optimizer in parts, each with the
    reason and what to do."""
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    every = [each for each in module.modules() if isinstance(each, tables) and each.sparse]
    sparse = {id(parameter) for each in every for parameter in each.parameters(recurse=False)}
    delayed = {id(each) for each in getattr(ddp, "_delay_all_reduce_params", ())}
    ignored = {*getattr(ddp, "parameters_to_ignore", ())}
    ignored |= {*getattr(module, "_ddp_params_and_buffers_to_ignore", ())}
    stepped = {id(each) for group in optimizer.param_groups for each in group["params"]} if optimizer else ()
    found = []
    for name, each in module.named_parameters():
        expected = hint = ""
        if not each.requires_grad:
            continue
        if id(each) in delayed:
            what = "is one of DDP's delay_all_reduce_named_params, which it sums outside of hooks"
            hint = "make DistributedDataParallel without them"
        elif {name, f".{name}"} & ignored:
            what = "is ignored by DDP (_ddp_params_and_buffers_to_ignore), so that ranks would differ in it"
            hint = "freeze it with requires_grad_(False), or keep it out of the model"
        elif id(each) in sparse or each.layout is not torch.strided:
            what, expected, hint = "has sparse gradients", "dense ones", "make embeddings with sparse=False"
        elif not each.dtype.is_floating_point:
            what, expected = f"is {each.dtype}", "real floating-point numbers"
        elif hasattr(each, "device_mesh") or each.is_meta:
            what = "is not whole here, but a DTensor or on the meta device"
            hint = "give each rank the whole model"
        elif hasattr(each, "_in_backward_optimizers") or each._post_accumulate_grad_hooks:
            what = (
                "has a hook in the backward pass, an optimizer say, before ranks have exchanged its gradient"
            )
            hint = "take off the post-accumulate-grad hook, and step behind backward()"
        elif optimizer is not None and not is_dense(each):
            what = f"is not contiguous in memory, with strides {each.stride()} for shape {tuple(each.shape)}"
            hint = "before the optimizer is made, say parameter.data = parameter.data.contiguous()"
        elif optimizer is not None and id(each) not in stepped:
            what = f"the optimizer lacks a parameter of shape {tuple(each.shape)} that the model trains"
            hint = "give the optimizer all parameters, or freeze this one"
        else:
            continue
        found.append(UserInputError(what, where=printable(name), expected=expected, hint=hint))
    return found


def unsupported_features(ddp: Any, kind: Synchronization, *, is_hooked: bool) -> list[UserInputError]:
    """Options of a DistributedDataParallel, or another module, that do not go with a hook or a job.

    Args:
        is_hooked: whether its hook is already ours.
    """
    logger = None if is_hooked else getattr(ddp, "logger", None)
    hook = ddp._get_ddp_logging_data().get("comm_hook") if logger else None
    short = getattr(ddp, "mixed_precision", None)
    waits = kind.needs.lone_pushes and getattr(ddp, "broadcast_buffers", False) and [*ddp.buffers()]
    sharded = any(map(_is_sharded, ddp.modules()))
    table = (
        (sharded, f"is sharded, which does not go with {kind.name} by a hook", "take the backend `mlt`"),
        (short, "has mixed_precision, which is a communication hook of its own", "take torch.autocast"),
        (hook and not short, f"has a communication hook, {hook}, and takes no second one", "leave it out"),
        (
            getattr(ddp, "skip_all_reduce_unused_params", False),
            "has skip_all_reduce_unused_params, so that hooks do not get all gradients",
            "take find_unused_parameters=True alone",
        ),
        (
            getattr(ddp, "_use_python_reducer", False),
            "has the reducer of compiled autograd, which has no buckets",
            "set torch._dynamo.config.optimize_ddp = True",
        ),
        (
            waits,
            "waits for all ranks in each forward pass, to have equal buffers",
            "make it with DistributedDataParallel(…, broadcast_buffers=False)",
        ),
    )
    return _errors(table)


def uneven(ddp: Any, kind: Synchronization) -> list[UserInputError]:
    """Options of `join` (batches that end earlier on some ranks) that do not work with the
    synchronization."""
    config = getattr(ddp, "_join_config", None)
    if config is None or not config.enable or config.throw_on_early_termination:
        return []
    what = f"trains under join(), in which a rank that has joined takes no steps for {kind.name}"
    divides = "trains under join(divide_by_initial_world_size=False), where sums are divided by all ranks"
    table = (
        (_is_around(kind), what, "take join(throw_on_early_termination=True), or bsp"),
        (not ddp._divide_by_initial_world_size, divides, "take join(divide_by_initial_world_size=True)"),
    )
    return _errors(table)


def _errors(table: Iterable[tuple[Any, str, str]]) -> list[UserInputError]:
    return [UserInputError(what, where="model", hint=hint) for is_there, what, hint in table if is_there]


def _is_around(kind: Synchronization) -> bool:
    """Whether a synchronization does something around the steps of the optimizer."""
    return kind.votes or kind.needs.lone_pushes


def agree(
    group: dist.ProcessGroup | None, ranks: Sequence[str], samples: int | None, setup: Callable[[], Setup]
) -> tuple[Setup, tuple[int, ...]]:
    """Exchange each rank's setup before anything else, and check that all agree.

    Args:
        samples: this rank's in a step; None: not given.
        setup: makes this rank's setup; all ranks are told of an error that it raises.

    Returns this rank's setup, and the samples of all ranks; none where no rank says how many it has. Raises
    UserInputError that names a rank that cannot start, JobMismatchError that names the first parameter in
    which models differ.
    """
    lines: list[str] = []
    problem: Exception | None = None
    try:
        own = setup()
        lines = described(own.named)
    except Exception as error:  # noqa: BLE001  (whatever it is, the others must not wait for this rank)
        problem = error
    digest = hashlib.sha256("\n".join(lines).encode(errors="replace")).hexdigest()
    text = "" if problem is None else ending_of(problem)
    if isinstance(problem, MltswitchError):
        text = str(problem)
    found = _gathered((samples, digest, text), group, len(ranks))
    if problem is not None:
        raise problem
    for rank, (_, _, text) in zip(ranks, found, strict=True):
        if text:
            raise UserInputError(text, where=rank)
    if len({theirs for _, theirs, _ in found}) > 1:
        every = _gathered(lines, group, len(ranks))
        other = next(number for number, theirs in enumerate(every) if theirs != every[0])
        pairs = enumerate(zip_longest(every[0], every[other], fillvalue="none"))
        at, (first, second) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
        what = f"its model differs in parameter {at} of its layers: {second}, where {ranks[0]} has {first}"
        hint = "make the same model on every rank, with its layers in the same order"
        raise JobMismatchError(what, where=ranks[other], hint=hint)
    said = [each for each, _, _ in found if each is not None]
    if said and len(said) < len(ranks):
        raise UserInputError(
            f"told by {len(said)} of {len(ranks)} ranks", where="samples", expected="all or none"
        )
    return own, tuple(said)


def described(named: Mapping[str, torch.nn.Parameter]) -> list[str]:
    """A line of text for each parameter, which must be equal on all ranks."""
    return [
        f"{name!r} {tuple(each.shape)} {each.dtype} {torch.empty_like(each, device='meta').stride()}"
        for name, each in named.items()
    ]


def group_of(
    job: Job,
    rank: int,
    rendezvous: str | Callable[[str], list[str]],
    config: AgentConfig | None,
    timeout_seconds: float,
    *,
    returns: bool = False,
) -> Group:
    """The agents of all nodes, once all have come; raises TrainingError that names the missing nodes."""
    try:
        seconds = timeout_seconds
        return Group(rank, job.nodes, rendezvous, config=config, timeout_seconds=seconds, returns=returns)
    except RanksMissingError as error:
        if returns:
            raise NodeLostError(str(error)) from None
        missing = ", ".join(map(job.node_name, error.ranks[:MOST_LISTED]))
        raise NodeLateError("did not come to the start", where=missing) from None
    except AgentError as error:
        raise NodeLostError(str(error)) from None


def meeting_of(process_group: dist.ProcessGroup | None, world: int) -> Callable[[str], list[str]]:
    """A function by which the ranks of a process group exchange their agents' addresses."""

    def meet(own: str) -> list[str]:
        return _gathered(own, process_group, world)

    return meet


def _gathered(own: Any, group: dist.ProcessGroup | None, world: int) -> list[Any]:
    found: list[Any] = [own] * world
    if world > 1:
        dist.all_gather_object(found, own, group=group)
    return found
