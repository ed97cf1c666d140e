"""Drives a participant of a job over a host agent, by one thread that also wakes waiting callers."""

import atexit
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Generic, TypeVar

from mltswitch.hostagent import Agent, AgentError, Completion, CompletionQueue, DeadlineExceededError
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerLost
from mltswitch.training.axes import Crossing
from mltswitch.training.carrier import AgentCarrier
from mltswitch.training.errors import (
    EXPLAINING_SECONDS,
    NodeLateError,
    NodeLostError,
    TrainingError,
    anew,
    cause_of,
    ending_of_process,
)
from mltswitch.training.participant import Participant
from mltswitch.units import NANOSECONDS

TURN_SECONDS: Final = 0.5
"""Longest time between checks of deadlines and messages; it is shorter where the deadline is."""
LOOKS: Final = 8
MEETING_TURN_SECONDS: Final = 0.02
MEETING_SECONDS: Final = 60.0
LEAVING_SECONDS: Final = 10.0
"""How long a node that leaves waits for the others to finish, too."""
EXIT_SECONDS: Final = 2.0
"""How long a node waits, when its process ends, for the others to finish or to hear of its error."""

N = TypeVar("N", bound=Participant)
_Call = Callable[[int], None]
"""Something for the node's thread to do, at a time in ns."""


class _Inbox(CompletionQueue):
    """Where completions and everything else meet, in the order in which they happen."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: queue.SimpleQueue[Completion | _Call | PeerLost | str | None] = queue.SimpleQueue()
        """A name: that node has said something; None: there may be something to do."""

    def add(self, completion: Completion) -> None:
        self.entries.put(completion)


class Driver(Generic[N]):
    """Drives one node by a thread of its own; any thread may call.

    Args:
        node: the node to drive.
        agent: the host agent, connected with those of all other nodes.
        names: the names of all nodes' agents, by number.
        failed: called in this node's thread with the error that ends the job.
        timeout_seconds: how long to wait for all nodes.

    Raises what `wait_until` raises where the nodes do not meet or disagree on the job.
    """

    def __init__(
        self,
        node: N,
        agent: Agent,
        names: Sequence[str],
        *,
        failed: Callable[[TrainingError], object] | None = None,
        timeout_seconds: float = MEETING_SECONDS,
    ) -> None:
        self.node: Final = node
        self.job: Final = node.job
        self._inbox = _Inbox()
        self._carrier = AgentCarrier(node.job, agent, names, self._inbox)
        self._agent = agent
        self._names: Final = tuple(names)
        self._failed = failed
        self._changed = threading.Condition()
        self._error: TrainingError | None = None
        self._is_closing = self._is_leaving = False
        self._has_told = False
        """Whether the others have been told that this node leaves."""
        self._moved_seconds = 0.0
        """When a transfer has ended last, while others are waited for."""
        self._unsent: dict[int, deque[bytes]] = {}
        """Words for nodes that have not read those before."""
        self._held: list[tuple[int, bytes]] = []
        """What nodes have said that are gone: it counts once all is known that has happened before."""
        self._pause = min(TURN_SECONDS, self.job.deadline_seconds / LOOKS)
        self._unexplained: deque[tuple[int, int, _Call]] = deque()
        """(time in ns, node, what ends the job unless somebody says goodbye with the cause until then)."""
        others = [name for at, name in enumerate(names) if name != agent.name and at not in node.gone]
        for name in others:
            try:
                self._carrier.channel.wait_for_peers([name], timeout_seconds)
            except AgentError as error:
                if not node.is_returning:
                    raise NodeLostError(str(error)) from None
                node.lost(names.index(name), error.what, time.monotonic_ns())
        agent.observe(self, PeerLost)
        self._carrier.channel.call_on_message(self._inbox.entries.put)
        for name in self._names:  # who has said something before
            self._inbox.entries.put(name)
        self._thread = threading.Thread(target=self._run, name=f"training-{node.number}", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)
        self._meet(timeout_seconds)

    def call(self, call: _Call) -> None:
        """Run a function in the node's thread, in the order of calls. Raises the error that ended the job."""
        self._check()
        self._inbox.entries.put(call)

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until a condition holds that only the node's thread changes; raises the error that ended the
        job."""
        with self._changed:
            while self._error is None and not is_true():
                self._changed.wait(TURN_SECONDS)
        self._check()

    def _at_exit(self) -> None:
        """The process ends, and nobody has closed this: the others hear of an exception."""
        self.close(ending_of_process(), EXIT_SECONDS)

    def close(self, reason: str = "", patience_seconds: float | None = None) -> None:
        """Leave the job; the agent stays open.

        Waits a little for the others to be done, too, for they may still need what this node has: up to the
        deadline, where they may have to agree on a fault first. With a reason, that of an error here, it ends
        the job for all at once.
        """
        if patience_seconds is None:
            patience_seconds = self.job.deadline_seconds if self.job.continues else LEAVING_SECONDS
        atexit.unregister(self._at_exit)
        with self._changed:
            if reason:
                self.node.fail(NodeLostError(reason, where=self.job.node_name(self.node.number)))
                self._end()
            elif self._error is None and self.node.has_met_all:
                self.node.leave()
                self._is_leaving = True
                self._inbox.entries.put(None)
                self._moved_seconds = time.monotonic()
                while self._error is None and time.monotonic() < self._moved_seconds + patience_seconds:
                    is_done = self.node.is_idle and self.node.has_left_all and not self.node.is_stopping
                    if is_done and self._has_told:
                        break
                    self._changed.wait(MEETING_TURN_SECONDS)
        self._is_closing = True
        self._agent.stop_observing(self)
        self._carrier.channel.call_on_message(None)
        self._inbox.entries.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(MEETING_SECONDS)
        until = time.monotonic() + EXIT_SECONDS
        while self._error is not None and self._is_connected and time.monotonic() < until:
            time.sleep(MEETING_TURN_SECONDS)  # the others hear why before they hear that the agent closes
        with self._changed:
            if self._error is None:  # whoever comes later, or still waits, must not wait for ever
                self._error = NodeLostError("has left the job", where=self.job.node_name(self.node.number))
            self._changed.notify_all()

    def observe(self, event: AgentEvent) -> None:
        """Note that the agent has lost a peer; the agent calls this for each of its events."""
        if isinstance(event, PeerLost):
            self._inbox.entries.put(event)

    @property
    def _is_connected(self) -> bool:
        return bool({*self._agent.peers} & {*self._names})

    def _check(self) -> None:
        error = self._error
        if error is not None:
            raise anew(error)

    def _meet(self, timeout_seconds: float) -> None:
        until = time.monotonic() + timeout_seconds
        with self._changed:
            while self._error is None and not self.node.is_in:
                if time.monotonic() > until:
                    problem = f"not all nodes have told their job within {timeout_seconds:g} s"
                    if self.node.has_met_all:
                        problem = f"the others have not taken this one in within {timeout_seconds:g} s"
                    self._error = NodeLateError(problem)
                self._changed.wait(MEETING_TURN_SECONDS)
        if self._error is not None:
            self.close()
            self._check()

    # The node's own thread

    def _run(self) -> None:
        try:
            while not self._is_closing and self._error is None:
                self._turn()
        except Exception as error:  # noqa: BLE001  (whoever waits must hear of it, whatever it is)
            here = self.job.node_name(self.node.number)
            self.node.fail(NodeLostError(f"{type(error).__name__}: {error}", where=here))
            self._end()

    def _turn(self) -> None:
        is_busy = self._unexplained or self._held or any(self._unsent.values())
        pause = MEETING_TURN_SECONDS if is_busy or not self.node.is_in else self._pause
        is_leaving = self._is_leaving
        self._tell()
        self._has_told = is_leaving and not any(self._unsent.values())
        try:
            entry = self._inbox.entries.get(timeout=pause)
        except queue.Empty:
            entry = None
        with self._changed:
            while entry is not None and self.node.error is None:
                self._take(entry)
                try:
                    entry = self._inbox.entries.get_nowait()
                except queue.Empty:
                    entry = None
            now_ns = time.monotonic_ns()
            self._end_waits(now_ns)
            self._hear_held(now_ns)
            if self.node.wants_arrivals(now_ns):
                self.node.measure(self._carrier.arriving(), now_ns)
            self.node.check(now_ns)
            self._do()

    def _take(self, entry: Completion | _Call | PeerLost | str) -> None:
        now_ns = time.monotonic_ns()
        match entry:
            case Completion():
                self._moved_seconds = time.monotonic()
                self._cross(self._carrier.crossing(entry), now_ns)
            case PeerLost(peer=peer) if peer in self._names:
                self._lose(self._names.index(peer), entry.reason, now_ns)
            case PeerLost():
                pass  # of another job
            case str() if entry in self._names:
                number = self._names.index(entry)
                self._listen(number, is_held=number in self.node.gone or number in self._explaining)
            case str():
                pass
            case _:
                entry(now_ns)

    def _cross(self, crossing: Crossing, now_ns: int) -> None:
        if crossing.error is None or crossing.is_withdrawn or self.node.is_stopping:
            self.node.crossed(crossing, now_ns)
            return
        self._listen(crossing.key[1])
        self._explain(crossing.key[1], str(crossing.error), partial(self.node.crossed, crossing), now_ns)

    def _lose(self, number: int, reason: str, now_ns: int) -> None:
        self._listen(number)
        self._explain(number, reason, partial(self.node.lost, number, reason), now_ns)

    def _explain(self, number: int, reason: str, call: _Call, now_ns: int) -> None:
        """What breaks with a node that is gone may be noticed before its goodbye, which may blame another.

        A node that ends by an exception of its own, behind one that was lost, has ended because of it.
        """
        cause = cause_of(reason)
        if cause is None:
            until_ns = now_ns + round(EXPLAINING_SECONDS * NANOSECONDS)
            self._unexplained.append((until_ns, number, call))
            return
        earlier = (lost for _, other, lost in self._unexplained if other != number)
        blames_itself = cause.where == self.job.node_name(number)
        if not blames_itself:
            call(now_ns)
            return
        causes = [*earlier, call] if self.job.continues else [next(earlier, call)]
        for each in causes:
            each(now_ns)

    def _do(self) -> None:
        """What the node wants done; a post that cannot begin ends at once."""
        self._carrier.withdraw(self.node.take_withdrawals())
        while self.node.error is None and (posts := self.node.take_posts()):
            self._carrier.post(posts)
            failed, self._carrier.failed = self._carrier.failed, []
            for crossing in failed:
                self._cross(crossing, time.monotonic_ns())
        self._tell_user()
        if self.node.error is not None:
            self._end()
        self._changed.notify_all()

    def _tell(self) -> None:
        """Short messages of nodes to all others: their job at first, and how far they are past a deadline."""
        words = self.node.take_words()
        if not words and not any(self._unsent.values()):
            return
        for number, name in enumerate(self._names):
            if name == self._agent.name or number in self.node.deaf:
                self._unsent.pop(number, None)
                continue
            unsent = self._unsent.setdefault(number, deque())
            unsent += words
            try:
                while unsent:
                    self._carrier.channel.send_message(name, unsent[0], 0.0)
                    unsent.popleft()
            except DeadlineExceededError:
                pass  # it reads no more for now: in the next turn
            except AgentError as error:
                unsent.clear()
                with self._changed:
                    self._lose(number, error.what, time.monotonic_ns())

    def _end_waits(self, now_ns: int) -> None:
        """What no goodbye has explained in time; and all of a node that is gone: it may come back soon."""
        while self._unexplained:
            calls = [
                call
                for until_ns, number, call in self._unexplained
                if until_ns <= now_ns or number in self.node.gone
            ]
            if not calls:
                return
            self._unexplained = deque(entry for entry in self._unexplained if entry[2] not in calls)
            for call in calls:
                call(now_ns)

    @property
    def _explaining(self) -> set[int]:
        """Nodes of which it is not clear yet why they are gone."""
        return {number for _, number, _ in self._unexplained}

    def _hear_held(self, now_ns: int) -> None:
        held, self._held, explaining = self._held, [], self._explaining
        for number, word in held:
            if number in explaining:
                self._held.append((number, word))
            else:
                self.node.told(number, word, now_ns)

    def _listen(self, number: int, *, is_held: bool = False) -> None:
        """What a node has said; also the last words of one that has left."""
        with suppress(AgentError):  # there is no more; that it is gone is told as an event
            while True:
                word = self._carrier.channel.receive_message(self._names[number], 0.0)
                if is_held:
                    self._held.append((number, word))
                else:
                    self.node.told(number, word, time.monotonic_ns())

    def _tell_user(self) -> None:
        """What else has happened at the node, in its thread."""

    def _end(self) -> None:
        """The job is over here: whoever waits hears why, and so do all others."""
        error = self.node.error
        if self._failed is not None and error is not None:
            self._failed(error)  # first: who is told by an exception finds it there
        self._error = error
        self._carrier.abort(self.node.goodbye)
