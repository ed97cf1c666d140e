"""A profile from any `torch.nn.Module`; the one place of this room that needs torch."""

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from mltswitch.errors import MachineError, MltswitchError, UserInputError
from mltswitch.profile.default import default_sensitivity
from mltswitch.profile.document import PROFILE_SCHEMA, ModelProfile
from mltswitch.profile.layers import Layer, Tensor

if TYPE_CHECKING:
    from torch.nn import Module, Parameter

ROOT_LAYER: Final = "(root)"
"""Name of the layer whose parameters the outermost module owns itself."""
LONGEST_PROBLEM: Final = 300
"""Characters of an error in the user's code that are shown."""
_FACTORY: Final = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*(\.[^\W\d]\w*)*)")


def profile_from_torch(factory: str) -> ModelProfile:
    """The profile of the module that `package.module:factory` returns, importable from the current folder.

    The factory returns a module, or (module, example): then one forward pass with the example (a tuple of
    arguments, a dict of named ones, or a single argument) gives the order in which layers run. With the
    module alone the order is that of registration, which most models keep close to it. Parameter values are
    never read, so the module may live on the meta device. Parameters used in several places count once, at
    the first; frozen ones (`requires_grad=False`) have no gradients and are left out.

    Raises:
        UserInputError: the factory cannot be imported or called, or what it returns cannot be read.
        MachineError: torch is not installed.
    """
    made = made_by(factory)
    has_example = isinstance(made, tuple) and len(made) == 2
    model, example = made if has_example else (made, None)
    if not isinstance(model, import_torch().nn.Module):
        raise UserInputError(
            f"returned a {type(model).__name__}",
            where=factory,
            expected="a torch.nn.Module, or (module, example arguments)",
        )
    return profile_of_module(factory, model, partial(call_with, model, example) if has_example else None)


def made_by(factory: str) -> Any:
    """What `package.module:factory`, importable from the current folder, returns when it is called.

    Raises:
        UserInputError: the factory cannot be imported or called.
        MachineError: torch is not installed.
    """
    match = _FACTORY.fullmatch(factory)
    if match is None:
        raise UserInputError(f"{factory!r} names no factory", expected="package.module:factory")
    import_torch()
    with user_code(factory):
        return _call(match["module"], match["name"])


def profile_of_module(
    factory: str, model: "Module", forward: Callable[[], object] | None = None
) -> ModelProfile:
    """The profile of a module.

    Args:
        factory: What made it, for its name and for errors.
        model: The module.
        forward: Runs the module forward once, which gives the order of the layers; its buffers and random
            numbers are afterwards as before. None: their order is that of registration.

    Raises:
        UserInputError: it has no trainable parameters, or the forward pass raises.
    """
    torch = import_torch()
    owners = _owners(model)
    if forward is not None:
        with user_code(factory), _unchanged(torch, model):
            owners = _in_order_of_execution(torch, forward, owners)
    if not owners:
        raise UserInputError("the module has no trainable parameters", where=factory)
    return _profile(torch, factory, model, owners, has_example=forward is not None)


def import_torch() -> Any:
    """The package torch; raises MachineError where it is not installed or does not load."""
    try:
        return importlib.import_module("torch")
    except (ImportError, OSError) as error:
        raise MachineError(
            f"torch cannot be imported: {error}", hint="`pip install 'mltswitch[torch]'`"
        ) from error


@contextlib.contextmanager
def user_code(factory: str) -> Iterator[None]:
    """The current folder importable, what is printed kept out of our output, any failure one clear line."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except MltswitchError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        problem = shorten(f"{type(error).__name__}: {error}", LONGEST_PROBLEM)
        raise UserInputError(problem, where=factory) from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _call(module: str, name: str) -> Any:
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return target()


@dataclass(slots=True)
class _Owner:
    """A module with trainable parameters that no module before it owns."""

    name: str
    parameters: "dict[str, Parameter]"
    modules: "list[Module]" = field(default_factory=list)
    """All modules that use one of these parameters."""


def _owners(model: "Module") -> list[_Owner]:
    """In the order of registration; a shared parameter belongs to the module that registers it first."""
    owners: list[_Owner] = []
    owner_of: dict[int, _Owner] = {}
    for name, module in model.named_modules():
        owner = _Owner(name or ROOT_LAYER, {})
        for parameter_name, parameter in module.named_parameters(prefix=name, recurse=False):
            if not parameter.requires_grad:
                continue
            first = owner_of.setdefault(id(parameter), owner)
            if first is owner:
                owner.parameters[parameter_name] = parameter
            first.modules.append(module)
        if owner.parameters:
            owners.append(owner)
    return owners


def call_with(model: "Module", example: Any) -> None:
    """One forward pass with a tuple of arguments, a dict of named ones, or a single argument."""
    if isinstance(example, dict):
        model(**example)
    else:
        model(*(example if isinstance(example, tuple) else (example,)))


@contextlib.contextmanager
def _unchanged(torch: Any, model: "Module") -> Iterator[None]:
    """Copies stand in for the buffers, and random numbers go on as before: a pass to look is no training.

    But the first pass of a lazy module makes it: nothing is put back then.
    """
    if any(map(torch.nn.parameter.is_lazy, (*model.parameters(), *model.buffers()))):
        yield
        return
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    buffers = [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        for module, name, buffer in buffers:
            setattr(module, name, buffer.clone())
        with torch.random.fork_rng(devices):
            yield
    finally:
        for module, name, buffer in buffers:
            setattr(module, name, buffer)


def _in_order_of_execution(torch: Any, forward: Callable[[], object], owners: list[_Owner]) -> list[_Owner]:
    """Sorted by the first forward call that uses them, in one pass.

    What is never called as a module (weights that its parent reads) stays behind its predecessor in the
    order of registration.
    """
    calls: dict[str, int] = {}

    def note_call(name: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            calls.setdefault(name, len(calls))

        return hook

    handles = [
        module.register_forward_pre_hook(note_call(owner.name))
        for owner in owners
        for module in owner.modules
    ]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    position = -1
    positions: dict[str, int] = {}
    for owner in owners:
        position = positions[owner.name] = calls.get(owner.name, position)
    return sorted(owners, key=lambda owner: positions[owner.name])


def _profile(
    torch: Any, factory: str, model: "Module", owners: list[_Owner], *, has_example: bool
) -> ModelProfile:
    frozen = sum(1 for parameter in model.parameters() if not parameter.requires_grad)
    order = "order of one forward pass" if has_example else "order of registration"
    convention = f"Trainable parameters, shared ones once; {order}."
    if frozen:
        convention += f" {frozen} frozen tensors carry no gradients and are left out."
    try:
        layers = tuple(_layer(torch, factory, owner) for owner in owners)
        return ModelProfile(
            schema=PROFILE_SCHEMA,
            name=factory.rpartition(":")[2],
            description=f"{type(model).__module__}.{type(model).__qualname__}",
            source=f"torch.nn.Module made by {factory}",
            parameter_convention=convention,
            layers=layers,
            sensitivity=default_sensitivity([layer.size_bytes for layer in layers]),
        )
    except ValidationError as error:
        problem = error.errors()[0]
        raise UserInputError(
            problem["msg"], where=f"{factory}: {'.'.join(map(str, problem['loc']))}"
        ) from error


def _layer(torch: Any, factory: str, owner: _Owner) -> Layer:
    tensors = []
    for name, parameter in owner.parameters.items():
        if torch.nn.parameter.is_lazy(parameter) or parameter.numel() == 0:
            raise UserInputError(
                "has no elements",
                where=f"{factory}: {name}",
                hint="where a layer is lazy, return (module, example arguments)",
            )
        shape = tuple(parameter.shape)
        tensors.append(Tensor(name=name, shape=shape, element_bytes=parameter.element_size()))
    return Layer(name=owner.name, tensors=tuple(tensors))
