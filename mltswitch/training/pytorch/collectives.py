"""The process group `mlt`, which carries out each collective of torch.distributed by transfers of tensors.

In an all-reduce every rank is the root of one contiguous part: it adds the addends in rank order and sends
the sum, whole, to all, so that all ranks hold the same bits.
"""
# ruff: noqa: D102  (torch.distributed documents its collectives)

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from itertools import count, repeat
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from mltswitch.errors import UserInputError
from mltswitch.training.pytorch.backend import PIECE_BITS, TAG_BITS, Collective, Family, Members, MltWork
from mltswitch.training.pytorch.options import MltOptions

PIECE_BYTES: Final = 2 << 20
"""Size of the parts of a sum, so that adding one overlaps the transfer of the next."""
DIRECT_BYTES: Final = 8 << 10
"""Up to this size all ranks send all to all, and each adds: one hop instead of two."""
_FUNCTIONS: Final[dict[str, Callable[..., Tensor]]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}
_FLOATS: Final = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
_ADDED_IN: Final = dict.fromkeys(_FLOATS, torch.float32) | {
    torch.complex32: torch.complex64,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
}
"""For types that are too short to add in, or that torch does not add."""
_Tensors = Sequence[Tensor]
_TorchGroup: Any = dist.ProcessGroup  # its methods' declared types are those of older callers, too
_family: Family | None = None
"""The family of torch's default group, where that is one of ours."""
_family_lock: Final = threading.Lock()


def create(options: Any, pg_options: MltOptions | None) -> "MltProcessGroup":
    """Make a process group for torch.distributed, with torch's own options and the user's.

    Raises UserInputError, MachineError, or TrainingError where ranks do not meet or disagree.
    """
    global _family  # noqa: PLW0603  (the agent belongs to the process, as torch's default group does)
    if pg_options is not None and not isinstance(pg_options, MltOptions):
        problem = f"is of type {type(pg_options).__name__}"
        raise UserInputError(problem, where="pg_options", expected="MltOptions")
    is_default = not options.global_ranks_in_group
    ranks = list(options.global_ranks_in_group or range(options.group_size))
    with _family_lock:
        family = None if is_default or _family is None or _family.is_over else _family
        chosen = pg_options or (family.options if family else MltOptions.from_environment())
        if family is None:  # a group beside a default one of another backend has an agent of its own
            family = Family(chosen, options.store, options.group_rank, ranks, options.timeout)
            ranks = list(range(options.group_size))
        if is_default:
            _family = family
    members = family.join(chosen, options.store, ranks)
    return MltProcessGroup(family, members, options.group_id, options.timeout)


def host(tensor: Tensor, *, is_read: bool = True) -> Tensor:
    """A tensor's elements as one row in host memory: a view where possible, else a copy (empty unless
    `is_read`).

    For GPUs the copy is pinned. Raises UserInputError for tensors that are not dense.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise UserInputError(f"is {tensor.layout}, {tensor.dtype}", where="tensor", expected="a dense one")
    tensor = tensor.detach()
    is_plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    if tensor.device.type == "cpu" and is_plain:
        return tensor.view(-1)
    if tensor.is_cuda:  # what the caller has queued may still write or read the tensor
        torch.cuda.current_stream(tensor.device).synchronize()
    row = torch.empty(tensor.numel(), dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)
    if is_read:
        row.view(tensor.shape).copy_(tensor)
    return row


def give_back(tensor: Tensor, row: Tensor) -> None:
    """Copy a row from `host` back to its tensor; on a GPU the copy is complete at the return."""
    if row.numel() and (row.device != tensor.device or row.data_ptr() != tensor.data_ptr()):
        tensor.detach().copy_(row.view(tensor.shape))
        if tensor.is_cuda:
            torch.cuda.current_stream(tensor.device).synchronize()


def add_up(addends: _Tensors, out: Tensor, kind: str) -> None:
    """Reduce rows in their order; `out` may be one of them."""
    function, wide = _FUNCTIONS[kind], _ADDED_IN.get(out.dtype, out.dtype)
    total = addends[0].to(wide)
    for number, addend in enumerate(addends[1:], 2):
        is_last = number == len(addends) and out.dtype is wide
        total = function(total, addend.to(wide), out=out) if is_last else function(total, addend.to(wide))
    if kind == "AVG":
        is_whole = not (wide.is_floating_point or wide.is_complex)
        total = torch.div(total, len(addends), rounding_mode="trunc" if is_whole else None)
    if total is not out:
        out.copy_(total)


@cache
def _check_reduction(kind: str, dtype: torch.dtype) -> None:
    try:
        add_up(
            [torch.zeros(1, dtype=dtype, device="cpu")] * 2, torch.zeros(1, dtype=dtype, device="cpu"), kind
        )
    except (KeyError, RuntimeError):
        expected = f"one of {', '.join(_FUNCTIONS)}, of a type that has it"
        raise UserInputError(f"{kind} of {dtype}", where="reduction", expected=expected) from None


def _pieces(part: Tensor) -> _Tensors:
    """Cut alike by the rank that sends and the one that adds."""
    return part.split(max(PIECE_BYTES // part.element_size(), (part.numel() >> PIECE_BITS) + 1))  # type: ignore[no-any-return]  # torch's


def reduction(
    run: Collective, parts: Mapping[int, Tensor], out: Tensor, kind: str, loss: float, *, is_shared: bool
) -> None:
    """Reduce the parts of tensors at one or several root ranks.

    Args:
        run: the collective that starts the transfers.
        parts: this rank's addends, by the root that adds them.
        out: where this rank's sum goes, if it is a root; not what is being sent.
        kind: name of the `ReduceOp`.
        loss: share of each rank's addends that may be missing.
        is_shared: whether sums go to all ranks, into `parts`, of which `out` is this rank's own.
    """
    own = parts.get(run.rank)
    rows: dict[int, _Tensors] = {} if own is None else {run.rank: _pieces(own)}
    for rank in run.others:
        if own is not None:
            rows[rank] = _pieces(torch.empty_like(own))
            for number, piece in enumerate(rows[rank]):
                run.receive(rank, piece, number, loss=loss)
        for number, piece in enumerate(_pieces(parts[rank]) if rank in parts else ()):
            run.send(rank, piece, number, is_lossy=loss > 0)
            if is_shared:
                run.receive(rank, piece, number, is_result=True)
    for number, piece in enumerate(_pieces(out) if rows else ()):
        run.wait(number)
        add_up([rows[rank][number] for rank in sorted(rows)], piece, kind)
        for rank in run.others if is_shared else ():
            run.send(rank, piece, number, is_result=True)
    run.wait()


class MltProcessGroup(_TorchGroup):  # type: ignore[misc]  # see there
    """A process group over the family's agent, and, for torch, its own backend.

    Collectives return at once with a work. All ranks call them in the same order, from any thread.
    """

    supports_splitting = supports_coalescing = supports_shrinking = supports_time_estimate = False

    def __init__(self, family: Family, members: Members, name: str, timeout: timedelta) -> None:
        super().__init__(members.rank, len(members.names))
        self._name: Final = name
        self.options: Final = members.options
        self._family, self._members = family, members
        self._world: Final = range(len(members.names))
        self._seconds = self.options.deadline_seconds or timeout.total_seconds()
        self._numbers: dict[tuple[str, int, int], count[int]] = {}
        self._numbers_lock = threading.Lock()

    # Sums

    def allreduce(self, tensors: _Tensors, opts: Any = None) -> MltWork:
        opts = opts or dist.AllreduceOptions()
        return _joined((self._all_reduce(tensor, opts) for tensor in tensors), tensors)

    allreduce_coalesced = allreduce

    def _all_reduce(self, tensor: Tensor, opts: Any) -> MltWork:
        row = host(tensor)
        if row.nbytes <= DIRECT_BYTES and self._loss([row], opts) == 0:
            return self._reduce(
                "all_reduce", dict.fromkeys(self._world, row), (tensor, torch.empty_like(row)), opts
            )
        parts = dict(enumerate(row.tensor_split(len(self._world))))
        return self._reduce("all_reduce", parts, (tensor, row), opts, parts[self._members.rank])

    def reduce(self, tensors: _Tensors, opts: Any) -> MltWork:
        root, row = opts.rootRank, host(tensors[0])
        return self._reduce(f"reduce at {root}", {root: row}, (tensors[0], row), opts)

    def reduce_scatter(self, outputs: _Tensors, inputs: Sequence[_Tensors], opts: Any = None) -> MltWork:
        parts = {rank: host(part) for rank, part in enumerate(inputs[0])}
        pair = (outputs[0], host(outputs[0], is_read=False))
        return self._reduce("reduce_scatter", parts, pair, opts or dist.ReduceScatterOptions())

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> MltWork:
        return self.reduce_scatter([output], [self._even(tensor.reshape(-1))], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: _Tensors, inputs: _Tensors, opts: Any = None
    ) -> MltWork:
        return _joined(map(self.reduce_scatter_single, outputs, inputs, repeat(opts)), outputs)

    # Everything else arrives whole

    def broadcast(self, tensors: _Tensors, opts: Any = None) -> MltWork:
        root, row = (opts or dist.BroadcastOptions()).rootRank, host(tensors[0])
        sends = dict.fromkeys(self._world, row) if root == self._members.rank else {}
        return self._exchange(f"broadcast from {root} of {row.numel()}", sends, {root: tensors[0]}, opts)

    def allgather(self, outputs: Sequence[_Tensors], inputs: _Tensors, opts: Any = None) -> MltWork:
        works = map(self._all_gather, outputs, inputs, repeat(opts))
        return _joined(works, [tensor for rows in outputs for tensor in rows])

    def _all_gather(self, outputs: _Tensors, tensor: Tensor, opts: Any) -> MltWork:
        sends = dict.fromkeys(self._world, host(tensor))
        return self._exchange("all_gather", sends, dict(enumerate(outputs)), opts)

    allgather_coalesced = allgather

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> MltWork:
        return self.allgather([self._even(output.view(-1))], [tensor], opts)

    def all_gather_single_coalesced(self, outputs: _Tensors, inputs: _Tensors, opts: Any = None) -> MltWork:
        return _joined(map(self.all_gather_single, outputs, inputs, repeat(opts)), outputs)

    def gather(self, outputs: Sequence[_Tensors], inputs: _Tensors, opts: Any) -> MltWork:
        receives = dict(enumerate(outputs[0])) if opts.rootRank == self._members.rank else {}
        return self._exchange(f"gather at {opts.rootRank}", {opts.rootRank: inputs[0]}, receives, opts)

    def scatter(self, outputs: _Tensors, inputs: Sequence[_Tensors], opts: Any) -> MltWork:
        sends = dict(enumerate(inputs[0])) if opts.rootRank == self._members.rank else {}
        return self._exchange(f"scatter from {opts.rootRank}", sends, {opts.rootRank: outputs[0]}, opts)

    def alltoall(self, outputs: _Tensors, inputs: _Tensors, opts: Any = None) -> MltWork:
        return self._exchange("all_to_all", dict(enumerate(inputs)), dict(enumerate(outputs)), opts)

    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, to: Sequence[int], of: Sequence[int], opts: Any = None
    ) -> MltWork:
        return self.alltoall(self._even(output, to), self._even(tensor, of), opts)

    def barrier(self, opts: Any = None) -> MltWork:
        token, tokens = torch.zeros(1, device="cpu"), torch.empty(len(self._world), 1, device="cpu")
        return self._exchange("barrier", dict.fromkeys(self._world, token), dict(enumerate(tokens)), opts)

    def send(self, tensors: _Tensors, dst: int, tag: int = 0) -> MltWork:
        return self._exchange(f"send to {dst}", {dst: tensors[0]}, {}, tag=tag, peer=dst)

    def recv(self, tensors: _Tensors, src: int, tag: int = 0) -> MltWork:
        return self._exchange(f"receive from {src}", {}, {src: tensors[0]}, tag=tag, peer=src)

    def recv_anysource(self, tensors: _Tensors, tag: int = 0) -> MltWork:  # noqa: ARG002
        raise UserInputError("a receive from any rank", where="recv", expected="`src`, the rank that sends")

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base, _allgather_base = reduce_scatter_single, all_gather_single
    alltoall_base = all_to_all_single

    # What torch asks of a group and of its backend

    @property
    def group_name(self) -> str:
        return self._name

    def getGroupName(self) -> str:  # noqa: N802  (torch's)
        return self._name

    def getBackendName(self) -> str:  # noqa: N802  (torch's)
        return "mlt"

    name = getBackendName

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), *[torch.device("cuda")] * torch.cuda.is_available()]

    def _get_backend(self, device: torch.device) -> "MltProcessGroup":  # noqa: ARG002
        return self

    def supports_tensor_alloc(self, device: torch.device) -> bool:  # noqa: ARG002
        return False

    def shutdown(self) -> None:
        self._family.leave(self._members.number)

    def abort(self) -> None:
        self._family.close()

    # How collectives begin

    def _exchange(
        self,
        what: str,
        sends: Mapping[int, Tensor],
        receives: Mapping[int, Tensor],
        opts: Any = None,
        tag: int | None = None,
        peer: int = 0,
    ) -> MltWork:
        """Tensors to and from ranks, by rank; a tensor for this rank itself is copied."""
        me = self._members.rank
        rows = {rank: host(tensor) for rank, tensor in sends.items()}
        buffers = {rank: host(tensor, is_read=False) for rank, tensor in receives.items()}
        dtypes = {str(row.dtype).removeprefix("torch.") for row in (*rows.values(), *buffers.values())}
        run = self._collective(f"{what} {', '.join(sorted(dtypes))}", opts, tag, peer)
        if me in rows and me in buffers:
            buffers[me].copy_(rows[me])

        def steps() -> None:
            for rank in run.others:
                if rank in buffers:
                    run.receive(rank, buffers[rank])
                if rank in rows:
                    run.send(rank, rows[rank])
            run.wait()
            for rank, buffer in buffers.items():
                give_back(receives[rank], buffer)

        return run.start(steps, [*receives.values()])

    def _reduce(
        self, what: str, parts: Mapping[int, Tensor], pair: tuple[Tensor, Tensor], opts: Any, part: Any = None
    ) -> MltWork:
        """A reduction of `parts` into the row of the pair, or `part` of it, and then to the pair's tensor."""
        tensor, row = pair
        kind, size = opts.reduceOp.op.name, sum(addends.numel() for addends in parts.values())
        _check_reduction(kind, row.dtype)
        run = self._collective(f"{what} {kind} of {size} {row.dtype}".replace("torch.", ""), opts)
        out = row if part is None else part
        loss = self._loss([*parts.values()], opts)

        def steps() -> None:
            reduction(run, parts, out, kind, loss, is_shared=part is not None)
            give_back(tensor, row)

        return run.start(steps, [tensor])

    def _collective(self, what: str, opts: Any, tag: int | None = None, peer: int = 0) -> Collective:
        """Its number counts the group's collectives, or the messages to or from a peer with a tag."""
        if tag is not None and not 0 <= tag < 1 << TAG_BITS:
            raise UserInputError(f"{tag}", where="tag", expected=f"0 to {(1 << TAG_BITS) - 1}")
        key = ("", 0, 0) if tag is None else (what.partition(" ")[0], peer, tag)
        with self._numbers_lock:
            number = next(self._numbers.setdefault(key, count()))
        is_timed = opts is not None and opts.timeout > timedelta(0)
        seconds = opts.timeout.total_seconds() if is_timed else self._seconds
        return Collective(self._family, self._members, what, number, seconds, tag)

    def _loss(self, parts: _Tensors, opts: Any) -> float:
        """The bound where a 0 in the place of an addend does no harm: in sums of floating-point numbers."""
        is_sum = opts.reduceOp.op.name in {"SUM", "AVG"} and parts[0].dtype.is_floating_point
        is_large = sum(part.nbytes for part in parts) >= self.options.least_lossy_bytes
        return self.options.loss_bound if is_sum and is_large else 0.0

    def _even(self, tensor: Tensor, sizes: Sequence[int] = ()) -> _Tensors:
        """A part for each rank, along the first dimension; of equal sizes, unless these are given."""
        world = len(self._world)
        if not sizes and tensor.shape[0] % world:
            raise UserInputError(
                f"{tensor.shape[0]} for {world} ranks", where="tensor", expected="equal parts"
            )
        return tensor.split([*sizes] or [tensor.shape[0] // world] * world)  # type: ignore[no-any-return]  # torch's


def _joined(works: Iterable[MltWork], tensors: _Tensors) -> MltWork:
    """One work for several."""
    outcomes = [outcome for work in works for outcome in work.outcomes]
    return MltWork(f"one of {len(outcomes)} collectives", outcomes, tensors)
