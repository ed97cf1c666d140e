"""The one Jinja2 environment: sandboxed, strict, templates from mltswitch/templates."""

from functools import cache

from jinja2 import PackageLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment


@cache
def _environment() -> SandboxedEnvironment:
    return SandboxedEnvironment(
        loader=PackageLoader("mltswitch", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render_template(name: str, /, **values: object) -> str:
    """Text of one template, named by its path such as `linux/routes.ip.j2`."""
    return _environment().get_template(name).render(**values)
