"""Renders mltswitch's templates."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("mltswitch", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        autoescape=False,  # noqa: S701  (what is written is no HTML)
    )


def render_template(name: str, /, **values: object) -> str:
    """Text of one template, named by its path such as `init/fabric.yaml.j2`."""
    return _environment().get_template(name).render(**values)
