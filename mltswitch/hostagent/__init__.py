"""The host agent: tags, sprays and paces tensors, and tolerates a bounded loss. Users import from here alone.

Names are loaded when they are asked for, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mltswitch.errors import UserInputError
    from mltswitch.hostagent.agent import Agent
    from mltswitch.hostagent.channel import Channel, ReceiveRequest, SendRequest
    from mltswitch.hostagent.config import AgentConfig
    from mltswitch.hostagent.endpoint import Endpoint
    from mltswitch.hostagent.errors import (
        AgentError,
        CancelledError,
        DeadlineExceededError,
        PeerBusyError,
        PeerRefusedError,
        PeerUnreachableError,
        ProtocolViolationError,
        TooManyTransfersError,
        TransferMismatchError,
    )
    from mltswitch.hostagent.group import Group
    from mltswitch.hostagent.tagging.policies import ByFunction, ByPosition, ImportancePolicy
    from mltswitch.hostagent.telemetry.metrics import serve_metrics
    from mltswitch.hostagent.telemetry.trace import TraceWriter
    from mltswitch.hostagent.transfer import Completion, CompletionQueue, Transfer
    from mltswitch.hostagent.transport.description import (
        Progress,
        RateController,
        RateSample,
        TransferStatistics,
    )

_MODULES: Final = {
    "agent": ("Agent",),
    "channel": ("Channel", "ReceiveRequest", "SendRequest"),
    "config": ("AgentConfig",),
    "endpoint": ("Endpoint",),
    "errors": (
        "AgentError",
        "CancelledError",
        "DeadlineExceededError",
        "PeerBusyError",
        "PeerRefusedError",
        "PeerUnreachableError",
        "ProtocolViolationError",
        "TooManyTransfersError",
        "TransferMismatchError",
    ),
    "group": ("Group",),
    "tagging.policies": ("ByFunction", "ByPosition", "ImportancePolicy"),
    "telemetry.metrics": ("serve_metrics",),
    "telemetry.trace": ("TraceWriter",),
    "transfer": ("Completion", "CompletionQueue", "Transfer"),
    "transport.description": ("Progress", "RateController", "RateSample", "TransferStatistics"),
}
_HOME: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentError",
    "ByFunction",
    "ByPosition",
    "CancelledError",
    "Channel",
    "Completion",
    "CompletionQueue",
    "DeadlineExceededError",
    "Endpoint",
    "Group",
    "ImportancePolicy",
    "PeerBusyError",
    "PeerRefusedError",
    "PeerUnreachableError",
    "Progress",
    "ProtocolViolationError",
    "RateController",
    "RateSample",
    "ReceiveRequest",
    "SendRequest",
    "TooManyTransfersError",
    "TraceWriter",
    "Transfer",
    "TransferMismatchError",
    "TransferStatistics",
    "UserInputError",
    "serve_metrics",
]


def __getattr__(name: str) -> Any:
    if name == "UserInputError":
        from mltswitch.errors import UserInputError

        return UserInputError
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
