"""Every rank sends to each root by itself, as parameter servers have it."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.routes import Tree
from mltswitch.overlay.trees import star


class StarSettings(BaseModel):
    """A star has no settings: any is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Star:
    """The description that is registered."""

    name = "star"
    settings = StarSettings

    def trees(self, overlay: Overlay, settings: StarSettings, exchange: Exchange) -> Mapping[int, Tree]:  # noqa: ARG002
        """See Policy."""
        return {root: star(root, len(overlay.ranks)) for root in overlay.roots}


POLICY: Final[Any] = Star()
