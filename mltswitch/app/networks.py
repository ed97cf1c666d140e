"""Loads networks as commands name them: an overlay, a WAN, a plan or a fabric file, or a short name."""

import re
from pathlib import Path
from typing import Final

from mltswitch.app import Tell
from mltswitch.documents import load_document, parse_yaml, read_text
from mltswitch.errors import UserInputError
from mltswitch.overlay.document import OVERLAY_SCHEMA, Overlay, overlay_of_graph, seated
from mltswitch.overlay.graph import fat_tree
from mltswitch.overlay.routes import Routes
from mltswitch.overlay.wan import SHIPPED, WAN_SCHEMA, Wan, known_wan
from mltswitch.plan import Fabric, Topology, load_plan, resolve_fabric
from mltswitch.planning.overlay import overlay_of
from mltswitch.targets import hardware_capabilities
from mltswitch.units import format_bps, parse_bps

FAT_TREE: Final = re.compile(r"fat-tree:(\d{1,3})(?:@([^/]+))?(?:/(\d+(?:\.\d+)?))?")
MOST_PORTS: Final = 32
SLOWEST_BPS: Final = 1_000_000


def known_network(network: str) -> tuple[Overlay, bool]:
    """The overlay that a command names, and whether its document says where nodes of the job are."""
    said = FAT_TREE.fullmatch(network)
    if said is not None:
        ports, over = int(said[1]), float(said[3] or 1)
        if ports % 2 or not 2 <= ports <= MOST_PORTS or not 1 <= over <= 1000:
            expected = f"an even number of ports, 2 to {MOST_PORTS}, and oversubscription from 1"
            raise UserInputError(f"{network!r:.60}", where="NETWORK", expected=expected)
        try:
            rate_bps = parse_bps(said[2] or "10Gbps")
        except ValueError as error:
            raise UserInputError(str(error), where="NETWORK") from None
        if rate_bps / over < SLOWEST_BPS:
            expected = f"uplinks of {format_bps(SLOWEST_BPS)} or more"
            raise UserInputError(f"{network!r:.60}", where="NETWORK", expected=expected)
        graph = fat_tree(ports, rate_bps, over)
        hosts = [name for name in graph.names if re.fullmatch(r"h\d+", name)]
        racks = {name: f"leaf{number // (ports // 2)}" for number, name in enumerate(hosts)}
        return overlay_of_graph(graph, racks), False
    if network.startswith("fat-tree:"):
        raise UserInputError(f"{network!r:.60}", where="NETWORK", expected="fat-tree:8@10Gbps/4, say")
    if SHIPPED.fullmatch(network):
        return known_wan(network).overlay(), True
    path = Path(network)
    document = parse_yaml(read_text(path), where=network)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == OVERLAY_SCHEMA:
        return load_document(path, Overlay), True
    if schema == WAN_SCHEMA:
        return load_document(path, Wan).overlay(), True
    if isinstance(schema, str) and schema.startswith("mltswitch/plan/"):
        return overlay_of(load_plan(path, accepts_edits=True).topology), False
    fabric = resolve_fabric(load_document(path, Fabric), hardware_capabilities)
    return overlay_of(Topology(fabric)), False


def network_of_job(network: str, ranks: int, servers: int) -> Overlay:
    """The network, with a job's nodes on its hosts unless it says where they are; raises UserInputError."""
    overlay, is_seated = known_network(network)
    hosts = len(overlay.ranks)
    for option, wanted in (("--workers", ranks), ("--servers", servers)):
        if not is_seated and wanted > hosts:
            raise UserInputError(f"{wanted}", where=option, expected=f"at most {hosts}, one a host")
    return overlay if is_seated else seated(overlay, ranks, servers)


def load_routes(path: Path, overlay: Overlay, tell: Tell) -> Routes:
    """The routes of a file; calls `tell` where they were made for another network, which may be intended."""
    routes = load_document(path, Routes)
    if routes.overlay != overlay.sha256():
        tell(f"{path}: was made for another network, or for other hosts of it")
    return routes
