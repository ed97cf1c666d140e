"""State as commands of simple_switch_CLI, one file."""

from itertools import count
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.targets.addresses import network_text
from mltswitch.targets.bmv2.capabilities import QUEUE_DEPTH_PACKETS
from mltswitch.targets.bmv2.contents import contents_of
from mltswitch.targets.bmv2.entries import DEPTH_METER, DEPTH_PLACE, SHARING, meter_line, place_of
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import SwitchState
from mltswitch.targets.template import render_template

FILE: Final = "mltswitch.txt"


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """`mltswitch.txt`."""
    del capabilities
    return {FILE: render_text(state)}


@remembering_last
def render_text(state: SwitchState) -> str:
    """All lines, in an order that is safe to enter: queues, then what leads to them, routes last.

    Groups have numbers from 1, in the order in which routes need them. Raises UnsupportedPlanError for what
    the tables cannot say.
    """
    contents = contents_of(state)
    groups = count(1)
    return render_template(
        "bmv2/mltswitch.txt.j2",
        depth=QUEUE_DEPTH_PACKETS,
        depth_mark=meter_line(DEPTH_PLACE, DEPTH_METER),
        queues=[
            (
                *(port, queue, level.threshold_bytes, level.limit_bytes),
                *(int(level.meter is not None), level.frame_bytes),
            )
            for (port, queue), level in contents.levels.items()
        ],
        meters=[
            meter_line(place_of(port, queue), level.meter)
            for (port, queue), level in contents.levels.items()
            if level.meter is not None
        ],
        classes=[entry.added for entries in contents.classes.values() for entry in entries],
        trust=[entry.added for entry in contents.trust.values()],
        neighbours=[(port, *neighbour) for port, neighbour in contents.neighbours.items()],
        routes=[
            (network_text(prefix), next(groups) if len(ports) > 1 else None, ports)
            for prefix, ports in contents.routes.items()
        ],
        share=SHARING[contents.packet_spraying],
    )
