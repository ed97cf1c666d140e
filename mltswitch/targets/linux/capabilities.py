"""What Linux queueing disciplines can do: the software switch, one virtual hardware model."""

from mltswitch.capabilities import Capabilities, LimitCapability, PortNumbering, ThresholdCapability

SOFTWARE = Capabilities(
    platform="linux",
    hardware="software",
    description="Linux queueing disciplines: prio, one red or bfifo per band, flower filters",
    queues=tuple(range(1, 17)),
    creates_queues=True,
    threshold=ThresholdCapability(
        step_bytes=1,
        minimum_bytes=1,
        maximum_bytes=2**30 - 1,
        source="linux include/net/red.h, red_check_params: min << Wlog must fit 32 bits",
    ),
    limit=LimitCapability(
        kind="bytes", source="linux tc-red(8) and tc-bfifo(8): limit in bytes", maximum_bytes=2**31 - 1
    ),
    averaging="exponential, weight 1/2 (Wlog 1, the least that the tc tool sets): a step is seen after a few "
    "packets; below a shaper the average also survives an empty queue, for one or two packets",
    marks_at="enqueue",
    port_numbering=PortNumbering(pattern="eth{n}"),
    can_shape=True,
    unverified=("whether a driver that offloads prio and red (mlxsw) keeps these thresholds",),
)
HARDWARE = {SOFTWARE.hardware: SOFTWARE}
