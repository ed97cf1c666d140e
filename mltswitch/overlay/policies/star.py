"""The policy `star`: every rank sends to each root directly, as with parameter servers."""

from collections.abc import Mapping
from typing import Final

from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.policies import NoSettings, Policy
from mltswitch.overlay.routes import Tree
from mltswitch.overlay.trees import star


def stars(overlay: Overlay, _settings: NoSettings, _exchange: Exchange) -> Mapping[int, Tree]:
    """The trees of the policy `star`: the parent of each rank is the root itself."""
    return {root: star(root, len(overlay.ranks)) for root in overlay.roots}


POLICY: Final = Policy("star", NoSettings, stars)
