"""A forward pass that waits for each parameter separately, not for all of them (cross barrier).

    forward = MltForward(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
    optimizer = forward.optimizer
    for inputs, labels in batches:
        optimizer.zero_grad()
        loss_of(model(inputs), labels).backward()
        optimizer.step()

Gradients leave as the backward pass makes them, and `optimizer.step()` does not wait for their sums: whoever
reads a parameter first waits for its own, and the optimizer's step of that parameter is made then. So front
layers, which cross the network first, are computed while those behind them are still on their way
(ByteScheduler, SOSP 2019, section 5; P3, SysML 2019).
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import Parameter

from mltswitch.errors import MOST_LISTED, UserInputError
from mltswitch.training.axes import Elements, Stage
from mltswitch.training.errors import NodeLostError, TrainingError, anew, ending_of
from mltswitch.training.pytorch.layout import Place, flat, versions_of
from mltswitch.training.pytorch.rank import Rank
from mltswitch.training.pytorch.replica import ELEMENTWISE, options_of
from mltswitch.training.pytorch.start import Setup, prepare
from mltswitch.training.pytorch.steps import ONCE

BY_PARAMETER: Final = ELEMENTWISE | {"Adafactor", "Muon", "Rprop"}
"""Torch's optimizers whose step of one parameter depends on no other parameter."""
UNUSED: Final = -0.0
"""Value of all elements of a parameter of which a rank has no gradient. A sum has it only where no rank has a
gradient, for -0 + 0 is 0, and what a loss bound leaves out is -0, too. Such parameters are not stepped."""
_READABLE: Final = "grad shape dtype device layout ndim requires_grad is_leaf is_cuda is_meta grad_fn"
METADATA: Final = frozenset(
    {getattr(torch.Tensor, name).__get__ for name in _READABLE.split()}
    | {torch.Tensor.grad.__set__, torch.Tensor.grad.__delete__}
    | {getattr(torch.Tensor, name) for name in ["size", "numel", "dim", "stride", "is_floating_point"]}
)
"""Attributes of a parameter that can be read without its values; reading any other waits for them."""


class MltForward(Rank):
    """Trains a model whose forward pass waits for each parameter separately; made once on every rank.

    The parameters after each step are those of `bsp` by `mlt_hook`, bit by bit. All ranks begin with the
    parameters and buffers of the first one.

    Args:
        model: the module itself, not its DistributedDataParallel.
        make_optimizer: makes an optimizer of torch of the parameters that it is called with, all that the
            model trains, once; their groups may be other ones.
        settings: those of `Rank`, except for `synchronization` and `optimizer`.

    Raises what `Rank` raises.
    """

    optimizer: torch.optim.Optimizer
    """The model's optimizer, for steps, schedulers, scalers and checkpoints as usual."""

    def __init__(
        self,
        model: torch.nn.Module,
        make_optimizer: Callable[[list[Parameter]], torch.optim.Optimizer],
        **settings: Any,
    ) -> None:
        self._make_optimizer = make_optimizer
        if settings.get("returns") is not None:
            problem = "no rank comes back to a job whose forward pass waits for each parameter"
            raise UserInputError(problem, where="returns", hint="take mlt_hook")
        super().__init__(model, **settings)

    def _prepare(
        self,
        model: torch.nn.Module,
        rank: int,
        optimizer: torch.optim.Optimizer | None,
        example: Any,
        config: Any,
        options: Mapping[str, Any],
    ) -> Setup:
        if optimizer is not None:
            raise UserInputError("is given, and make_optimizer makes it", where="optimizer")
        if (name := options.get("synchronization", "bsp")) != "bsp":
            problem = f"{name} works around the optimizer's step, which is made in parts"
            raise UserInputError(problem, where="synchronization", expected="bsp", hint="take mlt_hook")
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            problem = "is a DistributedDataParallel, which exchanges gradients by itself"
            raise UserInputError(problem, where="model", expected="the module that it wraps")
        trained = [each for each in model.parameters() if each.requires_grad]
        devices = sorted({str(each.device) for each in trained})
        if len(devices) > 1:
            problem = f"is on several devices: {', '.join(devices)}"
            raise UserInputError(problem, where="model", expected="one", hint="take mlt_hook")
        self.optimizer = self._make_optimizer(trained)
        _check_optimizer(self.optimizer, trained)
        return prepare(model, rank, self.optimizer, example, config, options, steps_apart=True)

    def _started(self, model: torch.nn.Module) -> None:
        self._awaited = _awaited_class(self._settle)
        self._settling = threading.RLock()
        self._stepped = self._synchronized = -1
        """The last exchange with which the optimizer has stepped, and the last of which `grad` has sums."""
        self._broken: TrainingError | None = None
        """Why a step of some parameters has failed: no other one can be made any more."""
        self._is_open = self._accumulates = False
        """Whether a backward pass is on its way, and whether its gradients stay here."""
        self._given: set[Parameter] = set()
        """Parameters whose gradients this backward pass has made."""
        self._gradients: list[tuple[int, int]] = []
        """Where the backward pass has left them, as `versions_of` has it."""
        self._pending: dict[Parameter, None] = {}
        """Parameters that the optimizer has to step yet, with its options when it was told to:"""
        self._options: list[dict[str, Any]] = []
        self._unread: set[Parameter] = set()
        """Parameters that the forward pass of this step has not read."""
        self._lacks: dict[Parameter, int] = {}
        """How many pieces of each parameter have no result in this step."""
        self._ready: deque[Parameter] = deque()
        """Parameters of which all are there; the node's thread adds, and whoever waits takes."""
        self._holders: list[list[Parameter]] = [[] for _ in self.job.pieces]
        """Parameters with elements in each piece."""
        for parameter, place in self._places.items():
            for piece in place.pieces:
                self._holders[piece].append(parameter)
        self._group_of = {
            each: number
            for number, group in enumerate(self.optimizer.param_groups)
            for each in group["params"]
        }
        self._partial = _like(self.optimizer)
        self._at_once = _unseen_readers(model)
        for tensor in (*self._module.parameters(), *self._module.buffers()):
            source = 0 if self._process_group is None else dist.get_global_rank(self._process_group, 0)
            values = tensor.detach().contiguous()
            dist.broadcast(values, source, group=self._process_group)
            tensor.detach().copy_(values)
        hooks = [each.register_post_accumulate_grad_hook(self._take) for each in self._places]
        self._handles: list[Any] = [
            *hooks,
            self.optimizer.register_step_pre_hook(
                lambda _, args, options: self._before([*args[1:], *options.values()])
            ),
            self.optimizer.register_step_post_hook(lambda *_: self._after()),
            self.optimizer.register_state_dict_pre_hook(lambda _: self.drain()),
            self.optimizer.register_load_state_dict_pre_hook(lambda *_: self.drain()),
        ]

    def drain(self) -> None:
        """Complete the optimizer's step for all parameters. Raises TrainingError.

        Whatever reads parameters waits for them by itself, and the optimizer's `state_dict`, too; who looks
        into its `state` calls this before.
        """
        self._settle([*self._pending])

    def synchronize(self) -> None:
        """Wait for the sums of all gradients, between the backward pass and the optimizer's step.

        The parameters' `grad` then has them, for `clip_grad_norm_` or a GradScaler, say, and the optimizer
        steps at once. Raises UserInputError where no gradients wait for a step, and TrainingError.
        """
        step = self._step
        if self._is_open or step in {-1, self._stepped}:
            problem = "comes without gradients that wait for the optimizer's step"
            self._refuse(UserInputError(problem, where="synchronize", hint=ONCE))
        if step == self._synchronized:
            return
        self._check_untouched()
        count = len(self.job.pieces)
        self._node.wait_until(lambda: len(self._have_results) == count)
        with torch.inference_mode(False):
            for parameter, place in self._places.items():
                parameter.grad = self._sum(parameter, place)
        self._synchronized = step

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A context in which backward passes add to the parameters' `grad`, which the first one after it
        exchanges."""
        before, self._accumulates = self._accumulates, True
        try:
            yield
        finally:
            self._accumulates = before

    def close(self, reason: str = "") -> None:
        """Close as `Rank.close` does; after an error some parameters may have made a step that others have
        not."""
        try:
            super().close(reason)
        finally:
            for parameter in self._pending:
                self._give_back(parameter)
            self._pending.clear()

    def _hold(self, parameter: Parameter) -> None:
        """Whoever reads its values waits for them, where torch tells of that."""
        if parameter not in self._at_once:
            parameter.__class__ = self._awaited

    def _give_back(self, parameter: Parameter) -> None:
        """Its values can be read; what was of a class of its own has stayed that."""
        if type(parameter) is self._awaited:
            parameter.__class__ = Parameter

    def _let_go(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _drain_last(self) -> None:
        self.drain()

    # The backward pass

    def _take(self, parameter: Any) -> None:
        """Autograd has added all that a backward pass has to a parameter's `grad`: it is exchanged."""
        if parameter in self._pending or parameter in self._unread:
            problem = f"{self._name(parameter)} was read before its step, by what torch does not tell of"
            hint = "make MltForward of the module that compiled code, scripted say, is in"
            self._refuse(UserInputError(problem, where="model", hint=hint))
        if self._accumulates:
            return
        if self.error is not None:
            raise anew(self.error)
        if not self._is_open:
            if max(self._stepped, self._synchronized) < self._step:
                problem = f"has not stepped with the gradients of step {self._step}"
                hint = f"{ONCE}; call synchronize() before what decides not to step"
                self._refuse(UserInputError(problem, where="optimizer", hint=hint))
            self._begin_step()
            queue: Any = torch.autograd.Variable._execution_engine.queue_callback
            queue(self._end)
        if parameter in self._given:
            problem = f"has two gradients in step {self._step}: {self._name(parameter)}"
            hint = "accumulate with no_sync, finish backward passes, checkpoint with use_reentrant=False"
            self._refuse(UserInputError(problem, where="model", hint=hint))
        if parameter.grad.layout is not torch.strided:
            self._refuse(UserInputError("has sparse gradients", where="model", expected="dense ones"))
        ready = self._fill(parameter)
        if ready:
            self._node.ready(self._step, ready, *self._vectors(self._step))

    def _fill(self, parameter: Any) -> list[int]:
        """Copy its `grad` to this step's vector: pieces that are whole by that."""
        self._given.add(parameter)
        place = self._places[parameter]
        if parameter.grad is None:
            return self._give(place, UNUSED)
        ready = self._give(place, flat(parameter.grad, parameter))
        if place.first < place.end:
            self._vectors(self._step)[0][place.first] += 0.0  # by which it is not UNUSED
        return ready

    def _begin_step(self) -> None:
        self._unread = {*self._pending}
        self.drain()
        super()._begin_step()
        with self._lock:
            self._ready.clear()
            self._ready.extend(each for each, place in self._places.items() if not place.pieces)
            self._lacks = {each: len(place.pieces) for each, place in self._places.items()}
        self._given.clear()
        self._is_open = True

    def _end(self) -> None:
        """The backward pass is over: what it has not come to has the gradients of passes before, or none."""
        others = [each for each in self._places if each not in self._given]
        ready = [piece for each in others for piece in self._fill(each)]
        if ready:
            self._node.ready(self._step, ready, *self._vectors(self._step))
        self._check_whole()
        if self._node.node.ballots.checks(self._step):
            self._tell_checksum(self._checksum())
        elif self._node.node.ballots.are_held(self._step):
            self._tell_checksum(0)
        self._gradients = versions_of(self._places)
        self._is_open = False

    def _arrived(self, step: int, piece: int, stage: Stage) -> None:  # noqa: ARG002  (as the node tells it)
        if piece == len(self.job.pieces):
            return  # a ballot
        with self._lock:
            self._have_results.add(piece)
            for parameter in self._holders[piece]:
                self._lacks[parameter] -= 1
                if not self._lacks[parameter]:
                    self._ready.append(parameter)

    # The optimizer's step

    def _before(self, arguments: Iterable[Any]) -> None:
        if self.error is not None:
            raise anew(self.error)
        if any(argument is not None for argument in arguments):
            problem = "steps with a closure, whose backward pass comes too late"
            self._refuse(UserInputError(problem, where="optimizer", hint=ONCE))
        if self._is_open:
            self._give_up("has a backward pass that is not over")
        trained = [each for group in self.optimizer.param_groups for each in group["params"]]
        every = (each for each in self._module.parameters() if each.requires_grad)
        if {*trained} != {*self._group_of} or any(each not in self._places for each in every):
            problem = "has, or the model trains, other parameters than when this was made"
            self._refuse(UserInputError(problem, where="optimizer", hint=self.ANEW))
        if self._step == self._stepped:
            if any(each.grad is not None for each in trained):
                problem = "steps with gradients that ranks have not exchanged"
                self._refuse(UserInputError(problem, where="optimizer", hint=ONCE))
        elif self._synchronized < self._step:
            self._check_untouched()
            for each in trained:
                each.grad = None  # so that the optimizer itself does nothing; its own is no sum

    def _after(self) -> None:
        if self._step == self._stepped:
            return
        self._stepped = self._step
        if self._synchronized == self._step:
            return
        self._options = options_of(self.optimizer)
        self._pending = dict.fromkeys(self._places)
        for each in self._places:
            self._hold(each)
        others = getattr(self.optimizer, "_optimizer_step_post_hooks", {})
        if len(others) > 1:  # they are told that it has stepped
            self.drain()
        else:
            self._settle(self._at_once)
            self._apply()

    def _check_untouched(self) -> None:
        """Refuses what was done to a rank's own gradients as if they were the sums."""
        if (
            self._gradients != versions_of(self._places)
            or getattr(self.optimizer, "grad_scale", None) is not None
        ):
            problem = "gradients have changed, by clipping or a scaler say, before their sums were there"
            hint = "call synchronize() behind backward(), by which `grad` has the sums"
            self._refuse(UserInputError(problem, where="optimizer", hint=hint))

    def _settle(self, wanted: Iterable[Parameter]) -> None:
        """Wait until these have been stepped, and step meanwhile what else is there."""
        with self._settling:
            if torch.jit.is_tracing() and self._pending:  # the step would be part of the trace
                raise UserInputError("is traced before its step", where="model", hint="call drain() before")
            while any(each in self._pending for each in wanted):
                if self._broken is not None:
                    raise anew(self._broken)
                self._node.wait_until(lambda: bool(self._ready))
                self._apply()

    def _apply(self) -> None:
        """Step parameters of which the sums are there. What the optimizer raises ends the job."""
        groups: defaultdict[int, list[Parameter]] = defaultdict(list)
        with self._settling, torch.inference_mode(False):
            while self._ready:
                parameter = self._ready.popleft()
                if parameter in self._pending:
                    self._give_back(parameter)
                    groups[self._group_of[parameter]].append(parameter)
            every = [each for members in groups.values() for each in members]
            held = [each.grad for each in every]
            try:
                for each in every:
                    each.grad = self._sum(each, self._places[each])
                self._partial.state = self.optimizer.state
                self._partial.param_groups = [
                    {**self._options[number], "params": members} for number, members in groups.items()
                ]
                self._partial.step()
            except BaseException as error:
                where = self.job.node_name(self._node.node.number)
                self._broken = NodeLostError(
                    f"has failed in the optimizer's step: {error!r:.100}", where=where
                )
                self._node.close(ending_of(error))
                for each in every:
                    self._hold(each)  # its values are those of no step
                raise
            finally:
                for each, gradient in zip(every, held, strict=True):
                    each.grad = gradient
            for each in every:
                del self._pending[each]

    def _sum(self, parameter: Parameter, place: Place) -> torch.Tensor | None:
        """A copy of the sum: optimizers write into gradients, and others may still get it from here.

        None: no rank has a gradient.
        """
        values = self._vectors(self._step)[1][place.first : place.end]
        if len(values) and _is_unused(values):
            return None
        gradient = torch.from_numpy(values).as_strided(parameter.shape, parameter.stride())
        return gradient.to(parameter.device, parameter.dtype, copy=True)

    def _name(self, parameter: Parameter) -> str:
        names = (name for name, each in self._module.named_parameters() if each is parameter)
        return str(next(names))


def _awaited_class(settle: Callable[[list[Parameter]], None]) -> type[Parameter]:
    """What a parameter is until the optimizer has stepped it: whatever asks for its values waits for them.

    Torch asks `__torch_function__` of a subclass before each of its functions, whoever calls it and with
    whatever layer, so that no use is overlooked; once it is stepped, it is a Parameter again.
    """

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch has no types here
    def wait(arguments: Any) -> None:
        settle([*_found(Awaited, arguments)])

    class Awaited(Parameter):  # type: ignore[misc]  # torch has no types here
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = kwargs or {}
            if func in METADATA:
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **named)
            wait((args, named))
            return func(*args, **named)

        def __deepcopy__(self, memo: Any) -> Any:
            settle([self])
            return self.__deepcopy__(memo)  # as a Parameter

        def __reduce_ex__(self, protocol: Any) -> Any:
            settle([self])
            return self.__reduce_ex__(protocol)

    return Awaited


def _found(kind: type[Parameter], value: Any) -> Iterator[Parameter]:
    """Tensors of a class in arguments of a function."""
    if type(value) is kind:
        yield value
    elif isinstance(value, dict):
        yield from _found(kind, [*value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _found(kind, each)


def _is_unused(values: Elements) -> bool:
    return not values[0] and bool(np.signbit(values[0]) and np.signbit(values).all() and not values.any())


def _check_optimizer(optimizer: Any, trained: list[Parameter]) -> None:
    """Raises UserInputError for an optimizer whose step cannot be made of each parameter by itself."""
    kind = type(optimizer)
    if not kind.__module__.startswith("torch.optim") or kind.__name__ not in BY_PARAMETER:
        problem = f"{kind.__name__} may look at all parameters at once"
        raise UserInputError(problem, where="optimizer", expected=", ".join(sorted(BY_PARAMETER)))
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise UserInputError("is differentiable", where="optimizer", expected="differentiable=False")
    known, own = {*trained}, [each for group in optimizer.param_groups for each in group["params"]]
    foreign = [each for each in own if each not in known]
    if foreign:
        shapes = ", ".join(str(tuple(each.shape)) for each in foreign[:MOST_LISTED])
        problem = f"has parameters that the model does not train, of shapes {shapes}"
        raise UserInputError(problem, where="optimizer", expected="the model's")


def _like(optimizer: torch.optim.Optimizer) -> Any:
    """Another one of the same kind, to which parameters, options and state are given for each step."""
    kind: Any = type(optimizer)
    groups = zip(optimizer.param_groups, options_of(optimizer), strict=True)
    return kind([{"params": group["params"], **options} for group, options in groups])


def _unseen_readers(model: torch.nn.Module) -> frozenset[Parameter]:
    """Parameters that compiled code reads, of which no Python hears: they are waited for in the step."""
    compiled = (torch.jit.ScriptModule, torch._dynamo.OptimizedModule)
    found = [
        each
        for each in model.modules()
        if isinstance(each, compiled) or getattr(each, "_compiled_call_impl", None) is not None
    ]
    others = (each for each in model.parameters() if type(each) is not Parameter)
    return frozenset({*others, *(each for module in found for each in module.parameters())})
