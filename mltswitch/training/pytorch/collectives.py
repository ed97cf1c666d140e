"""The process group `mlt`: each collective of torch.distributed as posts of tensors.

Sums are made where they are needed: every rank is the root of one contiguous part of an all-reduce, adds the
addends in rank order and sends the result, whole, to all, so that all ranks hold the same bits.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, Final

import torch
import torch.distributed as dist

from mltswitch.errors import UserInputError
from mltswitch.training.pytorch import NAME, MltOptions
from mltswitch.training.pytorch.backend import PIECES_BITS, TAG_BITS, Collective, Family, MltWork, Steps

PIECE_BYTES: Final = 2 << 20
"""Of a part of a sum: its addition overlaps the transfer of the next one."""
DIRECT_BYTES: Final = 8 << 10
"""Up to this size all ranks send all to all, and add on their own: one hop in the place of two."""

_FUNCTIONS: Final[dict[str, Callable[..., torch.Tensor]]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}
_ADDED_IN: Final = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.complex32: torch.complex64,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
}
"""Wider types for those that are too short to add in, or that torch does not add."""

_family: Family | None = None
"""Of torch's default group, where that is one of ours."""
_family_lock: Final = threading.Lock()


def create(options: Any, pg_options: MltOptions | None) -> "MltProcessGroup":
    """What torch.distributed calls for each group, on its ranks.

    Args:
        options: torch's `DistributedBackendOptions`.
        pg_options: the user's.

    Raises UserInputError, MachineError, or TrainingError where the ranks do not meet or disagree.
    """
    global _family  # noqa: PLW0603  (the agent belongs to the process, as torch's default group does)
    if pg_options is not None and not isinstance(pg_options, MltOptions):
        problem = f"is of type {type(pg_options).__name__}"
        raise UserInputError(problem, where="pg_options", expected="MltOptions")
    is_default = not options.global_ranks_in_group
    ranks = list(options.global_ranks_in_group or range(options.group_size))
    with _family_lock:
        family = None if is_default or _family is None or _family.is_closed else _family
        chosen = pg_options or (MltOptions.from_environment() if family is None else family.options)
        if family is None:  # a group beside a default one of another backend has an agent of its own
            family = Family(chosen, options.store, options.group_rank, ranks, options.timeout)
            ranks = list(range(options.group_size))
        if is_default:
            _family = family
    members = family.join(chosen, options.store, ranks, options.timeout)
    return MltProcessGroup(family, members, options)


def host(tensor: torch.Tensor, *, is_read: bool = True) -> torch.Tensor:
    """The tensor's elements as one row in host memory: where they lie, or else in a copy (pinned for GPUs).

    Args:
        tensor: any dense one.
        is_read: whether the row must hold what the tensor holds.

    Raises UserInputError for tensors that are not dense.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized:
        problem = f"is {'quantized' if tensor.is_quantized else tensor.layout}"
        raise UserInputError(problem, where="tensor", expected="a dense one")
    tensor = tensor.detach()
    is_plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    if tensor.device.type == "cpu" and is_plain:
        return tensor.view(-1)
    if tensor.is_cuda:  # what the caller has queued may still use the tensor
        torch.cuda.current_stream(tensor.device).synchronize()
    row = torch.empty(tensor.numel(), dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    if is_read:
        row.view(tensor.shape).copy_(tensor)
    return row


def give_back(tensor: torch.Tensor, row: torch.Tensor) -> None:
    """What has been received into a row of `host`, to its tensor; on a GPU it is there at the return."""
    if row.numel() and (row.device != tensor.device or row.data_ptr() != tensor.data_ptr()):
        tensor.detach().copy_(row.view(tensor.shape))
        if tensor.is_cuda:
            torch.cuda.current_stream(tensor.device).synchronize()


def add_up(addends: Sequence[torch.Tensor], out: torch.Tensor, kind: str) -> None:
    """Reduce rows in their order; `out` may be one of them."""
    function, wide = _FUNCTIONS[kind], _ADDED_IN.get(out.dtype)
    rows = addends if wide is None else [addend.to(wide) for addend in addends]
    total = rows[0]
    for row in rows[1:]:
        is_last = row is rows[-1] and wide is None
        total = function(total, row, out=out) if is_last else function(total, row)
    if kind == "AVG":
        is_whole = not (total.is_floating_point() or total.is_complex())
        total = torch.div(total, len(rows), rounding_mode="trunc" if is_whole else None)
    if total is not out:
        out.copy_(total)


@cache
def _check_reduction(kind: str, dtype: torch.dtype) -> None:
    """Raises UserInputError where torch cannot reduce elements of the type so."""
    try:
        one = torch.zeros(1, dtype=dtype)
        add_up([one, one], torch.empty_like(one), kind)
    except (KeyError, RuntimeError):
        expected = f"one of {', '.join(_FUNCTIONS)}, for a type that has it"
        raise UserInputError(f"{kind} of {dtype}", where="reduction", expected=expected) from None


def _pieces(part: torch.Tensor) -> Sequence[torch.Tensor]:
    """Cut alike by the rank that sends and the one that adds."""
    most = max(PIECE_BYTES // part.element_size(), -(-part.numel() >> PIECES_BITS), 1)
    return part.split(most)


def exchange(
    collective: Collective, sends: Mapping[int, torch.Tensor], receives: Mapping[int, torch.Tensor]
) -> Steps:
    """Rows to and from other ranks, whole."""
    for rank in collective.others:
        if rank in receives:
            collective.receive(rank, receives[rank])
        if rank in sends:
            collective.send(rank, sends[rank])
    yield None


def reduction(
    collective: Collective,
    parts: Mapping[int, torch.Tensor],
    out: torch.Tensor | None,
    kind: str,
    loss_bound: float = 0.0,
    *,
    is_shared: bool = False,
) -> Steps:
    """Sums at one or several roots.

    Args:
        collective: what posts.
        parts: this rank's addends, by the root that adds them.
        out: where this rank's sum goes, if it is a root; not what is being sent.
        kind: name of the `ReduceOp`.
        loss_bound: share of each rank's addends that may be missing, which then read as 0.
        is_shared: the sums go to all ranks, into `parts`; then `out` is this rank's own part.
    """
    me = collective.rank
    own, rows = parts.get(me), {}
    for rank in collective.others:
        if own is not None:
            rows[rank] = _pieces(torch.empty_like(own))
            for number, piece in enumerate(rows[rank]):
                collective.receive(rank, piece, piece=number, loss_bound=loss_bound)
        if rank in parts:
            for number, piece in enumerate(_pieces(parts[rank])):
                collective.send(rank, piece, piece=number, is_lossy=loss_bound > 0)
                if is_shared:
                    collective.receive(rank, piece, piece=number, is_result=True)
    if own is not None and out is not None:
        rows[me] = _pieces(own)
        for number, piece in enumerate(_pieces(out)):
            yield number
            add_up([rows[rank][number] for rank in sorted(rows)], piece, kind)
            for rank in collective.others if is_shared else ():
                collective.send(rank, piece, piece=number, is_result=True)
    yield None


class MltProcessGroup(dist.ProcessGroup):  # type: ignore[misc]  # torch is untyped here
    """A process group whose collectives run over the family's agent.

    Calls return at once with a work, whose `wait` raises what went wrong. Ranks call collectives in the same
    order; any thread may call. Arguments are torch's (`torch.distributed` says what they are).
    """

    supports_splitting = supports_coalescing = supports_shrinking = supports_time_estimate = False
    """For torch, which asks the group's backend; the group is its own."""

    def __init__(self, family: Family, members: Any, options: Any) -> None:
        super().__init__(options.group_rank, options.group_size)
        self.options: Final[MltOptions] = members.options
        self._family, self._members = family, members
        self._world: Final = range(options.group_size)
        self._seconds = self.options.deadline_seconds or options.timeout.total_seconds()
        self._numbers = itertools.count()
        self._messages: dict[tuple[str, int, int], itertools.count[int]] = {}
        self._messages_lock = threading.Lock()

    # Reductions

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> MltWork:  # noqa: D102
        opts = opts or dist.AllreduceOptions()
        return _joined([self._allreduce(tensor, opts) for tensor in tensors], tensors)

    allreduce_coalesced = allreduce

    def _allreduce(self, tensor: torch.Tensor, opts: Any) -> MltWork:
        kind, row = self._kind(opts, tensor), host(tensor)
        bound = self._bound(row, kind)
        collective = self._collective(f"all_reduce {kind}", row, opts)
        if row.nbytes <= DIRECT_BYTES and not bound:
            total = torch.empty_like(row)
            steps = reduction(collective, dict.fromkeys(self._world, row), total, kind)
            return collective.begin(_then(steps, lambda: give_back(tensor, total)), [tensor])
        parts = dict(enumerate(row.tensor_split(len(self._world))))
        steps = reduction(collective, parts, parts[collective.rank], kind, bound, is_shared=True)
        return collective.begin(_then(steps, lambda: give_back(tensor, row)), [tensor])

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> MltWork:  # noqa: D102
        kind, row, root = self._kind(opts, tensors[0]), host(tensors[0]), opts.rootRank
        collective = self._collective(f"reduce {kind} at {root}", row, opts)
        steps = reduction(
            collective, {root: row}, row if collective.rank == root else None, kind, self._bound(row, kind)
        )
        return collective.begin(_then(steps, lambda: give_back(tensors[0], row)), tensors)

    def reduce_scatter(  # noqa: D102
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> MltWork:
        return self._reduce_scatter(outputs[0], [host(part) for part in inputs[0]], opts)

    def reduce_scatter_single(  # noqa: D102
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> MltWork:
        _check_size(tensor, output.numel() * len(self._world))
        return self._reduce_scatter(output, host(tensor).tensor_split(len(self._world)), opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(  # noqa: D102
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> MltWork:
        pairs = zip(outputs, inputs, strict=True)
        return _joined([self.reduce_scatter_single(*pair, opts) for pair in pairs], outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter(self, output: torch.Tensor, parts: Sequence[torch.Tensor], opts: Any) -> MltWork:
        opts = opts or dist.ReduceScatterOptions()
        kind, row = self._kind(opts, output), host(output, is_read=False)
        _check_size(parts[self.rank()], row.numel())
        size = torch.empty(0, dtype=output.dtype)  # parts may differ: the agent compares each pair's
        collective = self._collective(f"reduce_scatter {kind}", size, opts)
        bound = self._bound(torch.empty(sum(part.numel() for part in parts), device="meta", dtype=row.dtype), kind)
        steps = reduction(collective, dict(enumerate(parts)), row, kind, bound)
        return collective.begin(_then(steps, lambda: give_back(output, row)), [output])

    # Everything else arrives whole

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> MltWork:  # noqa: D102
        opts = opts or dist.BroadcastOptions()
        root = opts.rootRank
        row = host(tensors[0], is_read=self.rank() == root)
        collective = self._collective(f"broadcast from {root}", row, opts)
        sends = dict.fromkeys(self._world, row) if self.rank() == root else {}
        receives = {} if self.rank() == root else {root: row}
        return self._exchange(collective, sends, receives, [(tensors[0], row)])

    def allgather(  # noqa: D102
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> MltWork:
        works = [self._all_gather(*pair, opts) for pair in zip(outputs, inputs, strict=True)]
        return _joined(works, [tensor for each in outputs for tensor in each])

    allgather_coalesced = allgather

    def _all_gather(self, outputs: Sequence[torch.Tensor], tensor: torch.Tensor, opts: Any) -> MltWork:
        row, rows = host(tensor), [host(output, is_read=False) for output in outputs]
        collective = self._collective("all_gather", row[:0], opts or dist.AllgatherOptions())
        rows[self.rank()].copy_(row)
        pairs = list(zip(outputs, rows, strict=True))
        return self._exchange(collective, dict.fromkeys(self._world, row), dict(enumerate(rows)), pairs)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> MltWork:  # noqa: D102
        _check_size(output, tensor.numel() * len(self._world))
        row, whole = host(tensor), host(output, is_read=False)
        rows = whole.tensor_split(len(self._world))
        collective = self._collective("all_gather", row, opts or dist.AllgatherOptions())
        rows[self.rank()].copy_(row)
        return self._exchange(
            collective, dict.fromkeys(self._world, row), dict(enumerate(rows)), [(output, whole)]
        )

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(  # noqa: D102
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> MltWork:
        pairs = zip(outputs, inputs, strict=True)
        return _joined([self.all_gather_single(*pair, opts) for pair in pairs], outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(  # noqa: D102
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any
    ) -> MltWork:
        row, root = host(inputs[0]), opts.rootRank
        collective = self._collective(f"gather at {root}", row[:0], opts)
        if self.rank() != root:
            return self._exchange(collective, {root: row}, {}, [])
        rows = [host(output, is_read=False) for output in outputs[0]]
        rows[root].copy_(row)
        return self._exchange(collective, {}, dict(enumerate(rows)), list(zip(outputs[0], rows, strict=True)))

    def scatter(  # noqa: D102
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any
    ) -> MltWork:
        row, root = host(outputs[0], is_read=False), opts.rootRank
        collective = self._collective(f"scatter from {root}", row[:0], opts)
        if self.rank() != root:
            return self._exchange(collective, {}, {root: row}, [(outputs[0], row)])
        rows = [host(part) for part in inputs[0]]
        row.copy_(rows[root])
        return self._exchange(collective, dict(enumerate(rows)), {}, [(outputs[0], row)])

    def alltoall(  # noqa: D102
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> MltWork:
        rows, parts = [host(output, is_read=False) for output in outputs], [host(part) for part in inputs]
        return self._all_to_all(rows, parts, list(zip(outputs, rows, strict=True)), opts)

    def all_to_all_single(  # noqa: D102
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_sizes: Sequence[int],
        input_sizes: Sequence[int],
        opts: Any = None,
    ) -> MltWork:
        row = host(output, is_read=False)
        rows, parts = self._split(output, row, output_sizes), self._split(tensor, host(tensor), input_sizes)
        return self._all_to_all(rows, parts, [(output, row)], opts)

    alltoall_base = all_to_all_single

    def _all_to_all(
        self,
        rows: Sequence[torch.Tensor],
        parts: Sequence[torch.Tensor],
        pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
        opts: Any,
    ) -> MltWork:
        collective = self._collective("all_to_all", rows[0][:0], opts or dist.AllToAllOptions())
        _check_size(parts[self.rank()], rows[self.rank()].numel())
        rows[self.rank()].copy_(parts[self.rank()])
        return self._exchange(collective, dict(enumerate(parts)), dict(enumerate(rows)), pairs)

    def barrier(self, opts: Any = None) -> MltWork:  # noqa: D102
        token, tokens = torch.zeros(1, dtype=torch.uint8), torch.empty(len(self._world), dtype=torch.uint8)
        collective = self._collective("barrier", token, opts or dist.BarrierOptions())
        rows = dict(enumerate(tokens.split(1)))
        return self._exchange(collective, dict.fromkeys(self._world, token), rows, [])

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:  # noqa: ARG002, D102  (all late ranks are named anyway)
        opts = dist.BarrierOptions()
        if timeout is not None:
            opts.timeout = timeout
        self.barrier(opts).wait()

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int = 0) -> MltWork:  # noqa: D102
        row = host(tensors[0])
        return self._exchange(self._message("send to", dst, tag), {dst: row}, {}, [])

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int = 0) -> MltWork:  # noqa: D102
        row = host(tensors[0], is_read=False)
        return self._exchange(self._message("receive from", src, tag), {}, {src: row}, [(tensors[0], row)])

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> MltWork:  # noqa: ARG002, D102
        raise UserInputError("a receive from any rank", where="recv", expected="`src`, the rank that sends")

    # What torch asks of a group and of its backend

    def getBackendName(self) -> str:  # noqa: D102, N802
        return NAME

    name = getBackendName

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), *[torch.device("cuda")] * torch.cuda.is_available()]

    def _get_backend(self, device: torch.device) -> "MltProcessGroup":  # noqa: ARG002
        return self

    def supports_tensor_alloc(self, device: torch.device) -> bool:  # noqa: ARG002, D102
        return False

    def set_timeout(self, timeout: timedelta) -> None:  # noqa: D102
        self._seconds = timeout.total_seconds()

    def shutdown(self) -> None:
        """The group is destroyed; the agent closes with its last group."""
        self._family.leave(self._members.number)

    def abort(self) -> None:
        """Give up all that is open, in all groups; the other ranks hear of it."""
        self._family.close()

    # How collectives begin

    def _collective(self, what: str, row: torch.Tensor, opts: Any) -> Collective:
        """Its number among the group's; all ranks say the same of it (`row`: as much as must be equal)."""
        self._family.check()
        size = f" of {row.numel()}" if row.numel() else ""
        seconds = opts.timeout.total_seconds() if opts.timeout > timedelta(0) else self._seconds
        text = f"{what}{size} {str(row.dtype).removeprefix('torch.')}"
        return Collective(self._family, self._members, text, next(self._numbers), seconds)

    def _message(self, what: str, rank: int, tag: int) -> Collective:
        self._family.check()
        if not 0 <= tag < 1 << TAG_BITS:
            raise UserInputError(f"{tag}", where="tag", expected=f"0 to {(1 << TAG_BITS) - 1}")
        with self._messages_lock:
            number = next(self._messages.setdefault((what, rank, tag), itertools.count()))
        text = f"{what} rank {rank} of the group, tag {tag}"
        return Collective(self._family, self._members, text, number, self._seconds, tag)

    def _exchange(
        self,
        collective: Collective,
        sends: Mapping[int, torch.Tensor],
        receives: Mapping[int, torch.Tensor],
        pairs: Iterable[tuple[torch.Tensor, torch.Tensor]],
    ) -> MltWork:
        """Begin it; in the end each tensor of `pairs` has what its row has."""
        pairs = list(pairs)

        def finish() -> None:
            for tensor, row in pairs:
                give_back(tensor, row)

        steps = exchange(collective, sends, receives)
        return collective.begin(_then(steps, finish), [tensor for tensor, _ in pairs])

    def _split(self, tensor: torch.Tensor, row: torch.Tensor, sizes: Sequence[int]) -> Sequence[torch.Tensor]:
        """Along the first dimension, evenly where no sizes are given."""
        length = tensor.shape[0]
        if not sizes and length % len(self._world) or sizes and sum(sizes) != length:
            expected = f"{length} in all, for {len(self._world)} ranks"
            raise UserInputError(f"{list(sizes)} of {length}", where="split sizes", expected=expected)
        chosen = sizes or [length // len(self._world)] * len(self._world)
        return row.split([size * (row.numel() // length if length else 0) for size in chosen])

    def _kind(self, opts: Any, tensor: torch.Tensor) -> str:
        kind = str(opts.reduceOp.op.name)
        _check_reduction(kind, tensor.dtype)
        return kind

    def _bound(self, row: torch.Tensor, kind: str) -> float:
        """What may be missing: only sums of floating-point numbers know a 0 that is no harm."""
        is_lossy = kind in {"SUM", "AVG"} and row.dtype.is_floating_point
        is_lossy = is_lossy and row.nbytes >= self.options.least_lossy_bytes
        return self.options.loss_bound if is_lossy else 0.0


def _then(steps: Steps, finish: Callable[[], None]) -> Steps:
    yield from steps
    finish()


def _joined(works: Sequence[MltWork], tensors: Sequence[torch.Tensor]) -> MltWork:
    """One work for several: over when all are, or one has failed."""
    if len(works) == 1:
        return works[0]
    joined = MltWork(f"{len(works)} collectives, {works[0].what} first" if works else "nothing", tensors)
    left, lock = itertools.count(len(works) - 1, -1), threading.Lock()

    def ended(outcome: Any) -> None:
        with lock:
            is_last = not joined.is_completed() and next(left) == 0
            if outcome.exception() is not None and not joined.is_completed():
                joined.end(outcome.exception())
            elif is_last:
                joined.end()

    for work in works:
        work.outcome.add_done_callback(ended)
    if not works:
        joined.end()
    return joined


def _check_size(tensor: torch.Tensor, elements: int) -> None:
    if tensor.numel() != elements:
        raise UserInputError(f"has {tensor.numel()} elements", where="tensor", expected=f"{elements}")
