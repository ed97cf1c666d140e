"""Templates as renderers call them: mltswitch's own, or those of a user in their place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, wraps
from typing import Final

from jinja2 import Environment, PackageLoader
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mltswitch.targets.sandbox import SYNTAX
from mltswitch.targets.state import SwitchState
from mltswitch.targets.user_templates import UserTemplates

_USED: Final[ContextVar[UserTemplates | None]] = ContextVar("_USED", default=None)
"""No argument of `Target.render`: how a target makes text of a state is its own affair, templates too."""


@contextmanager
def using_templates(templates: UserTemplates | None) -> Iterator[None]:
    """While it lasts, these templates stand in for mltswitch's own; None: none do."""
    if templates is not None:
        templates.begin()
    before = _USED.set(templates)
    try:
        yield
    finally:
        _USED.reset(before)


def used_templates() -> UserTemplates | None:
    """The templates of a user that stand in for mltswitch's own now."""
    return _USED.get()


@cache
def _environment() -> Environment:
    """Of mltswitch's own templates: sandboxed like those of users, without their limits."""
    return ImmutableSandboxedEnvironment(
        loader=PackageLoader("mltswitch", "templates"), auto_reload=False, **SYNTAX
    )


def render_template(name: str, /, **values: object) -> str:
    """Text of one template, named by its path such as `linux/routes.ip.j2`."""
    templates = _USED.get()
    if templates is not None and name in templates:
        return templates.render(name, values)
    return _environment().get_template(name).render(**values)


@dataclass(frozen=True, slots=True)
class _Rendered:
    state: SwitchState
    templates: UserTemplates | None
    text: str


def remember_last(render: Callable[[SwitchState], str]) -> Callable[[SwitchState], str]:
    """The same function, which remembers its last text: what is rendered is parsed at once and compared.

    States are compared, not hashed: a hash of hundreds of routes takes as long, and a comparison follows.
    """
    last: _Rendered | None = None

    @wraps(render)
    def rendered(state: SwitchState) -> str:
        nonlocal last
        known, templates = last, _USED.get()
        if known is None or known.templates is not templates or known.state != state:
            known = last = _Rendered(state, templates, render(state))
        return known.text

    return rendered
