"""A session with a switch by gNMI (specification 0.8): Get asks for paths, one Set is a whole change."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from mltswitch.deploy.session import LINE_SECONDS, Session, quoted, refusal, too_late
from mltswitch.errors import DeviceError, MachineError, UnreachableError, UserInputError
from mltswitch.inventory import Device
from mltswitch.targets import Step
from mltswitch.targets.openconfig.model import CAPABILITIES, CONFIG, KEY, PART, QOS, STATE, flatten, text_of

JSON_IETF: Final = 4
ORIGIN: Final = "openconfig"
"""The origin of every path: a device with models of its own takes a path without one for a path of those."""
SETTLE_SECONDS: Final = 10.0
"""Time limit in seconds until the device's state shows what was set."""
_CHANNEL_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),  # a switch is never behind a web proxy
    ("grpc.max_receive_message_length", 64 * 2**20),
    ("grpc.use_local_subchannel_pool", 1),  # a switch that was dead a moment ago is tried again at once
)
_UNANSWERED: Final = {"CANCELLED", "UNKNOWN", "INTERNAL", "DATA_LOSS"}
"""Codes after which nobody knows whether a Set has taken effect; others refuse it as a whole."""


@contextmanager
def open_gnmi(device: Device) -> Iterator["GnmiSession"]:
    """Connect over gNMI, and ask for the device's capabilities.

    The device's certificate has to name its address, and be issued by the inventory's authority, or by a
    public one.
    """
    try:
        names = ("grpc", "pygnmi.spec.v080.gnmi_pb2", "pygnmi.spec.v080.gnmi_pb2_grpc")
        grpc, *protocol = map(import_module, names)
        authority = device.ca_file.read_bytes() if device.ca_file else None
    except ImportError as error:
        what = f"the Python package {error.name} is missing"
        raise MachineError(what, hint="`pip install 'mltswitch[gnmi]'`") from None
    except OSError as error:
        what = f"{device.ca_file} cannot be read: {error.strerror}"
        raise UserInputError(what, where=f"{device.name}: mltswitch_ca_file") from None
    if authority is not None and b"BEGIN CERTIFICATE" not in authority:
        what = f"{device.ca_file} has no certificate in it"
        raise UserInputError(what, where=f"{device.name}: mltswitch_ca_file", expected="PEM")
    opened = grpc.insecure_channel if device.plaintext else grpc.secure_channel
    secured = () if device.plaintext else (grpc.ssl_channel_credentials(authority),)
    with opened(device.endpoint, *secured, options=_CHANNEL_OPTIONS) as channel:
        yield GnmiSession(device, channel, grpc.RpcError, *protocol)


class GnmiSession(Session):
    """A gNMI session, which takes the queries and commands of targets/openconfig/model.py."""

    def __init__(self, device: Device, channel: Any, error: Any, messages: Any, services: Any) -> None:
        self._device, self._channel, self._rpc_error, self._messages = device, channel, error, messages
        self._stub = services.gNMIStub(channel)
        password = device.password.read(device.name).get_secret_value() if device.password else ""
        if not (login := f"{device.user}{password}").isascii() or not login.isprintable():
            what = "gNMI carries printable ASCII alone as user and password"
            raise UserInputError(what, where=device.name)
        self._login = [("username", device.user), ("password", password)] if device.user else []
        self._capabilities = self._call("Capabilities", messages.CapabilityRequest(), device.connect_seconds)
        if JSON_IETF not in self._capabilities.supported_encodings:
            raise DeviceError("does not speak JSON_IETF")

    def hang_up(self) -> None:
        """Close the connection, whatever still waits for it."""
        self._channel.close()

    def ask(self, command: str) -> str:
        """The answer as JSON: the models, or path → value of the leaves that the device has below a path."""
        if command == CAPABILITIES:
            models = {each.name: each.version for each in self._capabilities.supported_models}
            return json.dumps({"models": models})
        kind, _, path = command.partition(" ")
        if kind not in (CONFIG, STATE):
            raise DeviceError(f"has no answer to {command!r}: it speaks gNMI")
        kind = "ALL" if kind == CONFIG else "STATE"
        request = self._messages.GetRequest(path=[self._path(path)], encoding=JSON_IETF, type=kind)
        try:
            answer = self._call("Get", request, LINE_SECONDS)
            leaves = dict(each for note in _notes(answer) for each in self._leaves(note))
        except _RefusedError as error:
            if not error.what.startswith("refuses Get: NOT_FOUND: "):
                raise
            leaves = {}
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            what = f"the answer to {command!r} has another form than known: {quoted(str(error))}"
            raise DeviceError(what) from None
        if kind == "ALL":
            leaves = {each: leaves[each] for each in leaves if _is_told(each, leaves)}
        return json.dumps(leaves, indent=0, sort_keys=True)

    def apply(self, steps: Sequence[Step]) -> None:
        """Send each step as one Set; then wait until the device's state shows it."""
        for index, step in enumerate(steps):
            asked = json.loads(step.stdin)
            changes = {kind: [self._update(*each) for each in asked[kind]] for kind in ("replace", "update")}
            request = self._messages.SetRequest(delete=map(self._path, asked["delete"]), **changes)
            try:
                self._call("Set", request, step.seconds or LINE_SECONDS)
            except _RefusedError as error:
                raise refusal(steps, index, error.what) from None
            deadline = time.monotonic() + SETTLE_SECONDS
            while "/state/" in self.ask(QOS) and time.monotonic() < deadline:
                time.sleep(0.5)

    def _update(self, path: str, tree: Any) -> Any:
        return self._messages.Update(path=self._path(path), val={"json_ietf_val": json.dumps(tree).encode()})

    def _path(self, text: str) -> Any:
        elements = [{"name": name, "key": dict(KEY.findall(keys))} for name, keys in PART.findall(text)]
        return self._messages.Path(origin=ORIGIN, elem=elements)

    def _leaves(self, note: Any) -> Iterator[tuple[str, Any]]:
        for update in note.update:
            path = ""
            for each in (*note.prefix.elem, *update.path.elem):
                keys = "".join(f"[{key}={text_of(value)}]" for key, value in sorted(each.key.items()))
                path += f"/{each.name.rpartition(':')[2]}{keys}"
            kind = update.val.WhichOneof("value")
            value = getattr(update.val, kind)
            value = json.loads(value) if kind in {"json_val", "json_ietf_val"} else value
            if isinstance(value, dict):
                if [each.rpartition(":")[2] for each in value] == [path.rpartition("/")[2]]:
                    [value] = value.values()  # some devices begin with the container that was asked for
                yield from flatten(value, path)
            elif isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
                place, _, name = path.rpartition("/")
                yield from flatten({name: value}, place)
            elif isinstance(value, str | int | list):
                yield path, value
            else:
                raise ValueError(f"{path[:120]} is a {kind}")

    def _call(self, name: str, request: Any, seconds: float) -> Any:
        try:
            return getattr(self._stub, name)(request, timeout=seconds, metadata=self._login)
        except self._rpc_error as error:
            code, details = error.code().name, quoted(error.details() or "no reason given")
        except ValueError:  # the channel is closed; its words may hold what was sent with it
            raise DeviceError("the session has ended") from None
        if code in {"UNAUTHENTICATED", "PERMISSION_DENIED"}:
            hint = "check ansible_user, and the password that mltswitch_password_env names"
            raise DeviceError(f"refuses user {self._device.user} {name}: {details}", hint=hint)
        if code == "UNAVAILABLE":
            own = "where its certificate is its own, name that: mltswitch_ca_file"
            raise UnreachableError(f"cannot be reached: {details}", hint=own if "SSL" in details else "")
        if code == "DEADLINE_EXCEEDED":
            raise too_late(name, seconds)
        kind = DeviceError if code in _UNANSWERED else _RefusedError
        raise kind(f"refuses {name}: {code}: {details}")


def _notes(answer: Any) -> Any:
    """The notifications in an answer; raises ValueError for an error of a server before specification 0.4."""
    if answer.HasField("error"):
        raise ValueError(answer.error.message or answer.error.code)
    return answer.notification


class _RefusedError(DeviceError):
    """The device has refused a request in so many words."""


def _is_told(path: str, leaves: dict[str, Any]) -> bool:
    """Whether a leaf is configured, or is state that differs from what is configured."""
    container, kind, name = (*path.rsplit("/", 2), "", "")[:3]
    twin = f"{container}/config/{name}"
    is_other = kind == "state" and twin in leaves and text_of(leaves[twin]) != text_of(leaves[path])
    return kind == "config" or is_other
