"""What other threads want to be done by an agent's own.

Without a lock: a signal handler may come in between wherever it likes, and ask for something, too.
"""

import logging
from collections import deque
from collections.abc import Callable

from mltswitch.errors import MltswitchError
from mltswitch.hostagent.errors import AgentError, CancelledError

_log = logging.getLogger(__name__)

Call = Callable[[], object]


class Calls:
    """In the order in which they were made; any thread may add one."""

    def __init__(self, wake_up: Callable[[], None]) -> None:
        """`wake_up`: whoever carries them out; raises OSError where nobody is there any more."""
        self._wake_up = wake_up
        self._waiting: deque[Call] = deque()
        self._refusal: AgentError | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, call: Call) -> None:
        """Have it done soon; raises AgentError where nothing is done any more."""
        self._waiting.append(call)
        if self._refusal is not None:
            try:
                self._waiting.remove(call)
            except ValueError:  # it has been done: it came before the end
                return
            raise type(self._refusal)(self._refusal.what)
        try:
            self._wake_up()
        except OSError as error:
            raise CancelledError("the agent is closed") from error

    def refuse(self, error: AgentError) -> None:
        """From now on."""
        self._refusal = self._refusal or error

    def obey(self) -> None:
        """Do all that waits; the failure of one is its own."""
        while self._waiting:
            try:
                self._waiting.popleft()()
            except MltswitchError as refused:
                _log.debug("not done: %s", refused)
            except Exception:  # noqa: BLE001  (whatever it is, the peers go on; the log says it)
                _log.exception("what another thread had asked for has failed")
