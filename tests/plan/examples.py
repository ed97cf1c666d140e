"""Small fabrics that the plan's tests share."""

from typing import Any

SMALL: dict[str, Any] = {
    "schema": "mltswitch/fabric/v1",
    "name": "small",
    "topology": {
        "leaf_spine": {
            "spines": {"count": 2, "platform": "linux", "port_names": {"pattern": "eth{n}"}},
            "leaves": {"count": 2, "platform": "linux", "port_names": {"pattern": "eth{n}"}},
            "hosts_per_leaf": 2,
        }
    },
    "addressing": {
        "hosts": "10.10.0.0/16",
        "links": "10.20.0.0/16",
        "alias": {"spine1": "10.101.0.0/16", "spine2": "10.102.0.0/16"},
    },
    "ports": {"rate": "50Mbps", "buffer": "384kB", "shaped": True},
    "traffic": {"load": 0.9, "burst_packets": 8},
    "classes": {"control": {"dscp": [40]}, "gradients": {"dscp": [34, 36, 26, 28, 18, 20, 10, 12]}},
}

LISTED: dict[str, Any] = SMALL | {
    "topology": {
        "switches": [
            {"name": "spine1", "role": "spine", "platform": "linux"},
            {"name": "spine2", "role": "spine", "platform": "linux"},
            {"name": "leaf1", "role": "leaf", "platform": "linux"},
            {"name": "leaf2", "role": "leaf", "platform": "linux"},
        ],
        "hosts": [{"name": f"host{number}"} for number in range(1, 5)],
        "links": [
            {"a": "host1:eth0", "b": "leaf1:eth1"},
            {"a": "leaf1:eth2", "b": "host2:eth0"},
            {"a": "leaf1:eth3", "b": "spine1:eth1"},
            {"a": "spine2:eth1", "b": "leaf1:eth4"},
            {"a": "leaf2:eth1", "b": "host3:eth0"},
            {"a": "leaf2:eth2", "b": "host4:eth0"},
            {"a": "leaf2:eth3", "b": "spine1:eth2"},
            {"a": "leaf2:eth4", "b": "spine2:eth2"},
        ],
    }
}
