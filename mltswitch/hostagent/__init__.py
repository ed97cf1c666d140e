"""The host agent: tags, sprays and paces tensors, and tolerates a bounded loss. Users import from here alone.

Names are loaded when they are asked for, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mltswitch.errors import UserInputError as UserInputError
    from mltswitch.hostagent.agent import Agent as Agent
    from mltswitch.hostagent.channel import Channel as Channel
    from mltswitch.hostagent.channel import ReceiveRequest as ReceiveRequest
    from mltswitch.hostagent.channel import SendRequest as SendRequest
    from mltswitch.hostagent.config import AgentConfig as AgentConfig
    from mltswitch.hostagent.early_close import Gather as Gather
    from mltswitch.hostagent.endpoint import Endpoint as Endpoint
    from mltswitch.hostagent.errors import AgentError as AgentError
    from mltswitch.hostagent.errors import CancelledError as CancelledError
    from mltswitch.hostagent.errors import DeadlineExceededError as DeadlineExceededError
    from mltswitch.hostagent.errors import PeerBusyError as PeerBusyError
    from mltswitch.hostagent.errors import PeerRefusedError as PeerRefusedError
    from mltswitch.hostagent.errors import PeerUnreachableError as PeerUnreachableError
    from mltswitch.hostagent.errors import ProtocolViolationError as ProtocolViolationError
    from mltswitch.hostagent.errors import RanksMissingError as RanksMissingError
    from mltswitch.hostagent.errors import TooManyTransfersError as TooManyTransfersError
    from mltswitch.hostagent.errors import TransferMismatchError as TransferMismatchError
    from mltswitch.hostagent.group import Group as Group
    from mltswitch.hostagent.tagging.policies import ByFunction as ByFunction
    from mltswitch.hostagent.tagging.policies import ByPosition as ByPosition
    from mltswitch.hostagent.tagging.policies import ImportancePolicy as ImportancePolicy
    from mltswitch.hostagent.telemetry.metrics import serve_metrics as serve_metrics
    from mltswitch.hostagent.telemetry.trace import TraceWriter as TraceWriter
    from mltswitch.hostagent.transfer import CompletionQueue as CompletionQueue
    from mltswitch.hostagent.transfer import Transfer as Transfer
    from mltswitch.hostagent.transport.records import Completion as Completion
    from mltswitch.hostagent.transport.records import RateController as RateController
    from mltswitch.hostagent.transport.records import RateSample as RateSample
    from mltswitch.hostagent.transport.records import TransferStatistics as TransferStatistics

_MODULES: Final = {
    "mltswitch.errors": "UserInputError",
    "mltswitch.hostagent.agent": "Agent",
    "mltswitch.hostagent.channel": "Channel ReceiveRequest SendRequest",
    "mltswitch.hostagent.config": "AgentConfig",
    "mltswitch.hostagent.early_close": "Gather",
    "mltswitch.hostagent.endpoint": "Endpoint",
    "mltswitch.hostagent.errors": "AgentError CancelledError DeadlineExceededError PeerBusyError"
    " PeerRefusedError PeerUnreachableError ProtocolViolationError RanksMissingError"
    " TooManyTransfersError TransferMismatchError",
    "mltswitch.hostagent.group": "Group",
    "mltswitch.hostagent.tagging.policies": "ByFunction ByPosition ImportancePolicy",
    "mltswitch.hostagent.telemetry.metrics": "serve_metrics",
    "mltswitch.hostagent.telemetry.trace": "TraceWriter",
    "mltswitch.hostagent.transfer": "CompletionQueue Transfer",
    "mltswitch.hostagent.transport.records": "Completion RateController RateSample TransferStatistics",
}
"""Module → what users have of it."""
_HOME: Final = dict(sorted((name, module) for module, names in _MODULES.items() for name in names.split()))

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
