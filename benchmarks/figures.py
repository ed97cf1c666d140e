"""How every benchmark prints what it found."""

import json
from collections.abc import Mapping

import click


def print_figures(found: Mapping[str, float], *, as_json: bool) -> None:
    """Named figures: one flat JSON object, or a line each."""
    click.echo(
        json.dumps(found) if as_json else "\n".join(f"{key}: {value:.4g}" for key, value in found.items())
    )
