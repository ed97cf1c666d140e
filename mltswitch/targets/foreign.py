"""Tells which unknown lines of a running configuration may touch a plan's queues.

Each target reads, or knows by name, what it can. Of the rest, a line on a port of the plan counts unless it
is known to be about something else; a line of the whole switch counts where it has a word of queues, buffers,
scheduling, policies or pause in it.
"""

import re
from typing import Final

TOUCHES: Final = re.compile(
    r"(?<![\w.-])(?:qos|cos|dscp|ecn|wred|random-detect|congestion(?:-control)?|(?:ingress-|egress-)?buffers?"
    r"|mmu|(?:cos-|tx-|uc-tx-)?queues?|pause|pfc|priority-flow-control|flow-?control|storm-control|shap(?:e|er|ing)"
    r"|traffic-(?:class|shape|policy|policies)|traffic pool|rate-limit|polic(?:e|er)|policy-map|bandwidth|wrr"
    r"|service-(?:policy|profile)|scheduler(?:-policy)?|priority-group|dcb\w*|datacenter-bridging|roce\w*"
    r"|diffserv|classofservice|tc|assign-queue)(?![\w.])",
    re.IGNORECASE,
)
"""Words of settings that decide in which queue a packet waits, for how long, and whether it is dropped."""
_SAYS_NOTHING: Final = re.compile(
    r"(?:description|name|alias|hostname|username|route-map|snmp-server|(?:ip(?:v6)? )?(?:vrf|route)) .*"
    r"|no (?!.*\b(?:traffic-class|queue) ).*"
)
_HARMLESS: Final = re.compile(
    r"(?:address|arp|auto-?neg\S*|bfd|cable-length|cdp|channel-group|description|dot1x|dot1q|duplex"
    r"|encapsulation|error-correction|evpn|exit|fec\S*|force|gvrp|hardware|igmp|ip|ipv[46]|isis|keepalive|lacp|link"
    r"|link-debounce|lldp|load-interval|logging|loopback|mac|mlag|module-type|monitor|mpls|mtu|l2|name|ospfv?3?|pim"
    r"|phy|port-channel|ptp|sflow|shutdown|snmp(?:-server)?|spanning-tree|speed|standalone-link-training|switchport"
    r"|counters|dhcp|errdisable|green-mode|isdp|multicast|poe|routing|sync-e|tap|tracking-group|transceiver|udld|unreliable-los|vlan|vmtracer|vrf|vrrp|xcvr\S*)\b.*"
)
"""Lines about addresses, links, bridging, routing and monitoring of a port: none of them holds, marks or
drops a packet in a queue (AVD's tested configurations ethernet-interfaces.cfg; NVIDIA Onyx user manual,
Ethernet Interfaces; Broadcom's klish tree, interface.xml; Dell N-series command reference)."""


def touches_switch(line: str) -> bool:
    """Whether an unknown line of the whole switch may change what happens to a packet."""
    return not _SAYS_NOTHING.fullmatch(line) and TOUCHES.search(line) is not None


def touches_port(line: str) -> bool:
    """Whether an unknown line of a port may change what happens to its packets."""
    setting = re.sub(r"^(?:no|default) ", "", line)
    is_known = _HARMLESS.fullmatch(setting) or (line.startswith("no ") and TOUCHES.search(setting))
    return touches_switch(line) or not is_known
