"""Makes a profile from any `torch.nn.Module`; the one module of this package that needs torch."""

import contextlib
import importlib
import pkgutil
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from mltswitch.documents import plain_words
from mltswitch.errors import (
    MOST_LISTED,
    MachineError,
    MltswitchError,
    UserInputError,
    did_you_mean,
    printable,
)
from mltswitch.profile.default import default_sensitivity
from mltswitch.profile.document import PROFILE_SCHEMA, ModelProfile
from mltswitch.profile.layers import Layer, Tensor

if TYPE_CHECKING:
    from torch.nn import Module, Parameter

ROOT_LAYER: Final = "(root)"
"""Name of the layer whose parameters the outermost module owns itself."""
LONGEST_PROBLEM: Final = 300
"""How many characters of an error in the user's code are shown."""
_FACTORY: Final = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):[^\W\d]\w*(\.[^\W\d]\w*)*")


def profile_from_torch(factory: str) -> ModelProfile:
    """The profile of the module that `package.module:factory` returns, importable from the current folder.

    The factory returns a module, or (module, example): then one forward pass with the example (a tuple of
    arguments, a dict of named ones, or a single argument) gives the order in which layers run, and makes
    what the model makes in its first pass. With the module alone the order is that of registration, which
    most models keep close to it. Parameter values are never read, so the module may live on the meta device.
    Parameters used in several places count once, at the first; frozen ones (`requires_grad=False`) have no
    gradients and are left out.

    Raises:
        UserInputError: the factory cannot be imported or called, or what it returns cannot be read.
        MachineError: torch is not installed.
    """
    made = made_by(factory)
    has_example = isinstance(made, tuple) and len(made) == 2
    model, example = made if has_example else (made, None)
    if not isinstance(model, import_torch().nn.Module):
        raise UserInputError(
            f"returned a value of type {type(model).__name__}",
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
    if match is None or match["module"].endswith(".py"):
        hint = f"write {factory.replace('.py:', ':').replace('/', '.')}" if ".py:" in factory else ""
        raise UserInputError(f"{factory!r} names no factory", expected="package.module:factory", hint=hint)
    import_torch()
    with user_code(factory):
        return pkgutil.resolve_name(factory)()


def profile_of_module(
    factory: str, model: "Module", forward: Callable[[], object] | None = None
) -> ModelProfile:
    """The profile of a torch module.

    Args:
        factory: What made the module, for the profile's name and for errors.
        model: The module.
        forward: Runs the module forward once, which gives the order of the layers; its buffers and random
            numbers are afterwards as before. None: their order is that of registration.

    Raises:
        UserInputError: no parameter is trainable, or not all that the module trains can be listed, or the
            forward pass raises.
    """
    return _profile(factory, model, owners_of(factory, model, forward), has_example=forward is not None)


def owners_of(factory: str, model: "Module", forward: Callable[[], object] | None = None) -> list["Owner"]:
    """The modules that own trainable parameters, in the order of the layers; see `profile_of_module`."""
    torch = import_torch()
    calls: list[Module] = []
    used: list[Parameter] = []
    if forward is not None:
        with user_code(factory), _unchanged(torch, model):
            calls, used = _traced(torch, forward)
    owners = _owners(model)  # after the pass, in which a model may make modules and parameters
    listed = {id(parameter) for owner in owners for parameter in owner.parameters.values()}
    missing = [
        f"{name} of a {type(module).__name__}"
        for module in (model, *{id(module): module for module in calls}.values())
        for name, parameter in module.named_parameters(recurse=module is model)
        if parameter.requires_grad and id(parameter) not in listed
    ]
    named = {id(parameter) for module in calls for parameter in module.parameters(recurse=False)}
    missing += [
        f"one of shape {tuple(parameter.shape)}, which no module has"
        for parameter in used
        if parameter.requires_grad and id(parameter) not in listed | named
    ]
    if missing:
        hint = "register the modules that it calls (ModuleList, ModuleDict), or freeze their parameters"
        shown = ", ".join(missing[:MOST_LISTED]) + (" …" if len(missing) > MOST_LISTED else "")
        problem = f"uses {len(missing)} trainable parameters that are none of the model's: {shown}"
        raise UserInputError(problem, where=factory, hint=hint)
    for owner in owners:
        for name in (name for name, each in owner.parameters.items() if torch.nn.parameter.is_lazy(each)):
            hint = "where a layer is lazy, return (module, example arguments), or run it once before"
            raise UserInputError("has no elements", where=f"{factory}: {name}", hint=hint)
    if not owners:
        raise UserInputError("the module has no trainable parameters", where=factory)
    return _in_order_of_execution(owners, calls) if forward is not None else owners


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
    """Run a user's code with the current folder importable, its prints kept out of our output, and failures
    as UserInputError."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except MltswitchError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        problem = shorten(f"{type(error).__name__}: {error}", LONGEST_PROBLEM)
        if isinstance(error, AttributeError):
            problem += did_you_mean(str(error.name), dir(error.obj))
        elif isinstance(error, ModuleNotFoundError):
            problem += f", searched in {folder}"
        raise UserInputError(problem, where=factory) from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


@dataclass(slots=True)
class Owner:
    """A module with trainable parameters of which it is the first owner."""

    name: str
    parameters: "dict[str, Parameter]"
    modules: "list[Module]" = field(default_factory=list)
    """All modules that use one of the owner's parameters."""


def _owners(model: "Module") -> list[Owner]:
    """In the order of registration; a shared parameter belongs to the module that registers it first."""
    owners: list[Owner] = []
    owner_of: dict[int, Owner] = {}
    layer_names: set[str] = set()
    tensor_names: set[str] = set()
    for name, module in model.named_modules():
        owner = Owner(_shown(name or ROOT_LAYER, layer_names), {})
        for parameter_name, parameter in module.named_parameters(prefix=name, recurse=False):
            if not parameter.requires_grad:
                continue
            first = owner_of.setdefault(id(parameter), owner)
            if first is owner:
                owner.parameters[_shown(parameter_name, tensor_names)] = parameter
            first.modules.append(module)
        if owner.parameters:
            owners.append(owner)
    return owners


def _shown(name: str, taken: set[str]) -> str:
    """Printable, and no other's: torch allows line ends and control characters, which stand escaped."""
    name = printable(name)
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def call_with(model: "Module", example: Any) -> None:
    """Run one forward pass with an example: a tuple of arguments, a dict of named ones, or a single
    argument."""
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
            if name in module._buffers:  # else the pass has put something else in its place
                setattr(module, name, buffer)


def _traced(torch: Any, forward: Callable[[], object]) -> "tuple[list[Module], list[Parameter]]":
    """Modules in the order in which one pass calls them, also those that it makes; parameters it uses."""
    calls: list[Module] = []
    used: dict[int, weakref.ref[Parameter]] = {}
    """Those that the pass makes and forgets, as it makes a module, are none of the model's."""
    thread = threading.get_ident()

    def note_call(module: "Module", _: object) -> None:
        if threading.get_ident() == thread:
            calls.append(module)

    class NoteParameters(torch.overrides.TorchFunctionMode):  # type: ignore[misc]  # no class without torch
        def __torch_function__(self, function: Any, _types: Any, args: Any = (), options: Any = None) -> Any:
            is_look = getattr(function, "__name__", "") == "__get__"  # at its shape, say
            for each in () if is_look else torch.utils._pytree.tree_leaves((args, options or {})):
                if isinstance(each, torch.nn.Parameter):
                    used[id(each)] = weakref.ref(each)
            return function(*args, **(options or {}))

    handle = torch.nn.modules.module.register_module_forward_pre_hook(note_call)
    try:
        with torch.no_grad(), NoteParameters():
            forward()
    finally:
        handle.remove()
    return calls, [parameter for each in used.values() if (parameter := each()) is not None]


def _in_order_of_execution(owners: list[Owner], calls: "list[Module]") -> list[Owner]:
    """Sorted by the first forward call that uses them.

    What is never called as a module (weights that its parent reads) stays behind its predecessor in the
    order of registration.
    """
    first = {id(module): number for number, module in reversed([*enumerate(calls)])}
    position = -1
    positions: dict[str, int] = {}
    for owner in owners:
        position = min(
            (first[id(module)] for module in owner.modules if id(module) in first), default=position
        )
        positions[owner.name] = position
    return sorted(owners, key=lambda owner: positions[owner.name])


def _profile(factory: str, model: "Module", owners: list[Owner], *, has_example: bool) -> ModelProfile:
    frozen = sum(1 for parameter in model.parameters() if not parameter.requires_grad)
    order = "order of one forward pass" if has_example else "order of registration"
    convention = f"Trainable parameters, shared ones once; {order}."
    if frozen:
        convention += f" {frozen} frozen tensors carry no gradients and are left out."
    layers = tuple(_layer(factory, owner) for owner in owners)
    with _valid(factory):
        return ModelProfile(
            schema=PROFILE_SCHEMA,
            name=factory.rpartition(":")[2],
            description=f"{type(model).__module__}.{type(model).__qualname__}",
            source=f"torch.nn.Module made by {factory}",
            parameter_convention=convention,
            layers=layers,
            sensitivity=default_sensitivity([layer.size_bytes for layer in layers]),
        )


@contextlib.contextmanager
def _valid(where: str) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise UserInputError(plain_words(problem), where=f"{where}: {place}") from error


def _layer(factory: str, owner: Owner) -> Layer:
    tensors = []
    for name, parameter in owner.parameters.items():
        if parameter.numel() == 0:
            hint = "freeze it with requires_grad_(False), for it has no gradients"
            raise UserInputError("has no elements", where=f"{factory}: {name}", hint=hint)
        shape = tuple(parameter.shape)
        tensors.append(Tensor(name=name, shape=shape, element_bytes=parameter.element_size()))
    with _valid(f"{factory}: {owner.name}"):
        return Layer(name=owner.name, tensors=tuple(tensors))
