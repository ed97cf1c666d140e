"""What Linux queueing disciplines can do: the software switch, one virtual hardware model."""

from mltswitch.capabilities import (
    BandwidthCapability,
    Capabilities,
    LimitCapability,
    PortNumbering,
    ThresholdCapability,
    unverified,
)

PLATFORM = "linux"
SOFTWARE = Capabilities(
    platform=PLATFORM,
    hardware="software",
    description="Linux queueing disciplines: prio and drr, one red or bfifo for each queue, flower filters",
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
    "packets; where red stands below tbf or drr, the average also survives an empty queue: of the first "
    "Not-ECT packets then, as many are lost as the last backlog can be halved before it is below S "
    "(two where it was six times S; measured on Linux 6.1)",
    averaging_packets=4,
    marks_at="enqueue",
    port_numbering=PortNumbering(pattern="eth{n}", lanes=0, lag_pattern="bond{n}"),
    can_shape=True,
    minimum_bandwidth=BandwidthCapability(
        kind="percent",
        source="linux sch_drr.c, deficit round robin by quantum: of what the control classes leave; "
        "measured on Linux 6.1",
    ),
    maximum_bandwidth=BandwidthCapability(
        kind="rate",
        step_bps=8,
        minimum_bps=8,
        source="linux tc-tbf(8): whole bytes a second, burst one frame",
    ),
    rewrites_code_points="linux tc-pedit(8): ip dsfield and ip6 traffic_class with retain; tc-flower(8); "
    "tried on Linux 6.1",
    segment_routing="linux Documentation/networking/seg6-sysctl.rst, ip-route(8): encap seg6local action End",
    unverified=unverified(
        PLATFORM,
        {
            "offload": "whether a driver that offloads prio and red (mlxsw) keeps these thresholds; drr it "
            "does not offload",
            "srv6-queues": "SRv6 on a kernel with these queues: routes and packets were tried on Linux "
            "6.18, the queues on 6.1",
        },
    ),
)
HARDWARE = {SOFTWARE.hardware: SOFTWARE}
