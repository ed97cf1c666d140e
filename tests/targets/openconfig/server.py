"""A simulated switch that serves gNMI on the loopback, strict by the public models.

It knows the leaves below and no others, takes values of their types alone, resolves references, and takes a
Set as a whole or not at all (gNMI specification, 3.4). What it calls things and how it answers is a `System`.
"""

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc

from mltswitch.targets.openconfig.model import KEY, PART, flatten, nest

MODELS = """
qos/queues/queue[name]: name=string queue-id=uint8
qos/forwarding-groups/forwarding-group[name]: name=string output-queue=queues/queue
qos/queue-management-profiles/queue-management-profile[name]: name=string
qos/queue-management-profiles/queue-management-profile[name]/wred/uniform: min-threshold=uint64 \
max-threshold=uint64 enable-ecn=boolean drop=boolean weight=uint32 max-drop-probability-percent=uint8
qos/classifiers/classifier[name]: name=string type=enum
qos/classifiers/classifier[name]/terms/term[id]: id=string
qos/classifiers/classifier[name]/terms/term[id]/conditions/ipv4: dscp-set=list
qos/classifiers/classifier[name]/terms/term[id]/conditions/ipv6: dscp-set=list
qos/classifiers/classifier[name]/terms/term[id]/actions: target-group=forwarding-groups/forwarding-group
qos/scheduler-policies/scheduler-policy[name]: name=string
qos/scheduler-policies/scheduler-policy[name]/schedulers/scheduler[sequence]: sequence=uint32 priority=enum
qos/scheduler-policies/scheduler-policy[name]/schedulers/scheduler[sequence]/inputs/input[id]: id=string \
input-type=enum queue=queues/queue
qos/interfaces/interface[interface-id]: interface-id=string
qos/interfaces/interface[interface-id]/interface-ref: interface=string subinterface=uint32
qos/interfaces/interface[interface-id]/input/classifiers/classifier[type]: type=enum \
name=classifiers/classifier
qos/interfaces/interface[interface-id]/output/scheduler-policy: name=scheduler-policies/scheduler-policy
qos/interfaces/interface[interface-id]/output/queues/queue[name]: name=string \
queue-management-profile=queue-management-profiles/queue-management-profile
network-instances/network-instance[name]: name=string type=identity
network-instances/network-instance[name]/protocols/protocol[identifier][name]: identifier=identity name=string
network-instances/network-instance[name]/protocols/protocol[identifier][name]/static-routes/static[prefix]: \
prefix=string
network-instances/network-instance[name]/protocols/protocol[identifier][name]/static-routes/static[prefix]\
/next-hops/next-hop[index]: index=string next-hop=string metric=uint32
"""
"""Containers of the models, with the keys of lists → leaves of `config`: a type, or the list referred to."""
TYPES = {
    f"/{path}/config/{leaf}": kind
    for path, _, leaves in (line.partition(": ") for line in MODELS.splitlines())
    for leaf, _, kind in (each.partition("=") for each in leaves.split())
}
NODES = {path[: match.end()] for path in TYPES for match in re.finditer(r"/[^/]+", path)}
LISTS = {
    path.rpartition("[")[0]: path.rpartition("[")[2][:-1].split(",") for path in NODES if path[-1] == "]"
}
VALUES = {
    "uint64": r'"\d+"',
    "boolean": "true|false",
    "identity": r'"[\w-]+:\w+"',
    "enum": r'"[A-Z][A-Z0-9_]*"',
}
VALUES |= {"uint8": r"\d{1,2}|1\d\d", "uint32": r"\d{1,9}", "list": r"\[\d{1,2}(, \d{1,2})*\]"}
"""Type → its JSON, as RFC 7951 has it; of all others: text."""


class RefusedError(Exception):
    """The switch does not take a request."""


@dataclass
class System:
    """What an OS calls things, and how it answers."""

    instance: str = "default"
    static: str = "STATIC"
    queues: tuple[str, ...] = ()
    """Those that exist as delivered, by their numbers."""
    version: str = "0.11.2"
    is_piecewise: bool = False
    """Whether an answer has many parts, and a path with nothing below is not found."""
    models: tuple[str, ...] = ("openconfig-qos", "openconfig-network-instance")


EOS_LIKE = System()
SR_LINUX_LIKE = System(
    "DEFAULT", "static", tuple(f"unicast-{n}" for n in range(8)), "2.2.0", is_piecewise=True
)


def schema_of(path: str) -> str:
    """A path with the names of its keys alone."""
    return re.sub(r"=[^\]]*", "", path)


def text_of(path: Any) -> str:
    """A path of the protocol as text."""
    keys = ("".join(f"[{key}={value}]" for key, value in sorted(each.key.items())) for each in path.elem)
    return "".join(f"/{each.name}{key}" for each, key in zip(path.elem, keys, strict=True))


@dataclass
class Switch:
    """Leaves that are configured, and what is wrong with the switch."""

    system: System = field(default_factory=System)
    hostname: str = "leaf1"
    password: str = "secret"  # noqa: S105 (of a simulated switch)
    config: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    """before, after: in a Set the switch goes, and is dead; hang: in a call; refuse; lag: in applying; busy:
    its database does not answer."""
    is_listing: bool = False
    """Whether it answers a list at the path of its entries, as an array (RFC 7951)."""
    sets: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        instance = f"/network-instances/network-instance[name={self.system.instance}]/config"
        self.config[f"{instance}/name"] = self.system.instance
        self.config[f"{instance}/type"] = "openconfig-network-instance-types:DEFAULT_INSTANCE"
        for number, name in enumerate(self.system.queues):
            path = f"/qos/queues/queue[name={name}]/config"
            self.config |= {f"{path}/name": name, f"{path}/queue-id": number}

    def leaves(self) -> dict[str, Any]:
        """All that a Get may tell: what is configured, state with counters, and who it is."""
        found = dict(self.config)
        for path, value in self.config.items():
            place, _, leaf = path.rpartition("/config/")
            found[f"{place}/state/{leaf}"] = "none" if self.fault == "lag" else value
            found[f"{place}/state/transmit-pkts"] = str(time.monotonic_ns())
        system, chassis = "/system/state", "/components/component[name=Chassis]/state"
        found |= {f"{system}/hostname": self.hostname, f"{system}/software-version": "1.2.3"}
        return found | {f"{chassis}/serial-no": "ABC123", f"{chassis}/part-no": "DCS-7050CX3-32S-F"}

    def set(self, request: Any) -> None:
        """Take a SetRequest as a whole; raises RefusedError."""
        after = dict(self.config)
        for path in (*request.delete, *(change.path for change in request.replace)):
            begin = text_of(path)
            if schema_of(begin) not in NODES:
                raise RefusedError(f"unknown path {begin}")
            after = {
                leaf: after[leaf] for leaf in after if leaf != begin and not leaf.startswith(f"{begin}/")
            }
        for change in (*request.replace, *request.update):
            path, tree = text_of(change.path), json.loads(change.val.json_ietf_val)
            leaves = dict(flatten(tree, path))
            if tree != nest(leaves, path):
                raise RefusedError(
                    f"{path}: the first names, and they alone, say their module; keys are there"
                )
            after |= leaves
        self._validate(after)
        self.config = after
        self.sets.append(request)

    def _validate(self, after: Mapping[str, Any]) -> None:
        numbers: dict[Any, str] = {}
        for path, value in after.items():
            kind = TYPES.get(schema_of(path), "" if path in self.config else "no leaf")
            if kind == "no leaf" or not re.fullmatch(VALUES.get(kind, '".+"'), json.dumps(value)):
                raise RefusedError(f"{path} is {value!r}, and should be {kind}")
            if "/" in kind and not any(leaf.startswith(f"/qos/{kind}[name={value}]/") for leaf in after):
                raise RefusedError(f"{path} refers to {value!r}, which does not exist")
            if path.endswith("/queue-id") and numbers.setdefault(value, path) != path:
                raise RefusedError(f"{path} and {numbers[value]} are one queue")
            for match in PART.finditer(path if kind else ""):
                for key, _ in KEY.findall(match[2]):
                    if f"{path[: match.end()]}/config/{key}" not in after:
                        raise RefusedError(f"{path[: match.end()]} does not say its key")


class _Service(gnmi_pb2_grpc.gNMIServicer):  # type: ignore[misc]  # generated code has no types
    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.over = threading.Event()

    def _enter(self, context: Any) -> None:
        given = dict(context.invocation_metadata())
        if self.switch.fault == "dead":
            context.abort(grpc.StatusCode.UNAVAILABLE, "Connection refused")
        if (given.get("username"), given.get("password")) != ("admin", self.switch.password):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "invalid username or password")
        if self.switch.fault == "hang":
            self.over.wait(30)

    def Capabilities(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._enter(context)
        system = self.switch.system
        models = [gnmi_pb2.ModelData(name=name, version=system.version) for name in system.models]
        return gnmi_pb2.CapabilityResponse(supported_models=models, supported_encodings=[4])

    def Get(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._enter(context)
        if self.switch.fault == "busy":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "database: key NOT_FOUND")
        [path] = request.path
        if path.origin != "openconfig" or request.encoding != 4:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "wrong origin or encoding")
        pattern = re.compile(re.escape(text_of(path)).replace(r"=\*", r"=[^,\]]*") + r"(?=[/\[]|$)")
        is_state = request.type == gnmi_pb2.GetRequest.DataType.Value("STATE")
        parts: dict[str, dict[str, Any]] = {}
        for leaf, value in self.switch.leaves().items():
            place = pattern.match(leaf)
            if place and ("/state/" in leaf or not is_state):
                begin = leaf[: leaf.find("]") + 1] if self.switch.system.is_piecewise else place[0]
                parts.setdefault(begin if leaf.startswith("/qos") else leaf, {})[leaf] = value
        if self.switch.system.is_piecewise and not parts:
            context.abort(grpc.StatusCode.NOT_FOUND, f"nothing at {text_of(path)}")
        updates = []
        if self.switch.is_listing and text_of(path) == "/qos":
            return gnmi_pb2.GetResponse(
                notification=[gnmi_pb2.Notification(update=self._lists(parts["/qos"]))]
            )
        for begin, leaves in parts.items():
            elements = [{"name": name, "key": dict(KEY.findall(keys))} for name, keys in PART.findall(begin)]
            value = leaves.get(begin) if begin in leaves else nest(leaves, begin)
            updates.append({"path": {"elem": elements}, "val": {"json_ietf_val": json.dumps(value).encode()}})
        return gnmi_pb2.GetResponse(notification=[gnmi_pb2.Notification(update=updates)])

    @staticmethod
    def _lists(leaves: dict[str, Any]) -> list[Any]:
        return [
            {
                "path": {"elem": [{"name": each} for each in ("qos", box.partition(":")[2], name)]},
                "val": {"json_ietf_val": json.dumps(entries).encode()},
            }
            for box, content in nest(leaves, "/qos").items()
            for name, entries in content.items()
        ]

    def Set(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._enter(context)
        fault = self.switch.fault
        self.switch.fault = "dead" if fault in ("before", "after") else fault
        if fault == "refuse":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "hardware table full")
        try:
            if fault != "before":
                self.switch.set(request)
        except RefusedError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if self.switch.fault == "dead":
            context.abort(grpc.StatusCode.UNAVAILABLE, "Connection reset by peer")
        return gnmi_pb2.SetResponse()


@contextmanager
def serving(switch: Switch, certificate: tuple[bytes, bytes] | None = None) -> Iterator[int]:
    """The port at which the switch answers; with TLS where there is (certificate, key)."""
    server, service = grpc.server(futures.ThreadPoolExecutor(4)), _Service(switch)
    gnmi_pb2_grpc.add_gNMIServicer_to_server(service, server)
    if certificate is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([certificate[::-1]]))
    server.start()
    try:
        yield port
    finally:
        service.over.set()
        server.stop(None).wait()
