"""Templates as renderers call them: mltswitch's own, or those of a user in their place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, Final

from jinja2 import Environment, PackageLoader
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mltswitch.targets.memory import remembering_last
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


class _Sandbox(ImmutableSandboxedEnvironment):
    """One that finds out once for each attribute of each class whether a template may have it.

    That depends on the class and the name alone (jinja2.sandbox, is_internal_attribute and
    modifies_known_mutable), and takes longer than all else that a template does.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._is_safe: dict[tuple[type, str], bool] = {}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """As the base class says."""
        key = (type(obj), attr)
        known = self._is_safe.get(key)
        if known is None:
            known = self._is_safe[key] = super().is_safe_attribute(obj, attr, value)
        return known


@cache
def _environment() -> Environment:
    """Of mltswitch's own templates: sandboxed like those of users, without their limits."""
    return _Sandbox(loader=PackageLoader("mltswitch", "templates"), auto_reload=False, **SYNTAX)


def render_template(name: str, /, **values: object) -> str:
    """Text of one template, named by its path such as `linux/routes.ip.j2`."""
    templates = _USED.get()
    if templates is not None and name in templates:
        return templates.render(name, values)
    return _environment().get_template(name).render(**values)


def remember_last(render: Callable[[SwitchState], str]) -> Callable[[SwitchState], str]:
    """The same function, which remembers its last text, as long as the same templates are used."""

    @remembering_last
    def remembered(given: tuple[SwitchState, UserTemplates | None]) -> str:
        return render(given[0])

    @wraps(render)
    def rendered(state: SwitchState) -> str:
        return remembered((state, _USED.get()))

    return rendered
