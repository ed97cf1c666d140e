"""The side that listens: answers one examiner after the other, within bounds of its own."""

import selectors
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from mltswitch.hostagent.control.channel import ChannelSettings, ControlChannel
from mltswitch.hostagent.control.listener import ControlListener, ListenerLimits
from mltswitch.hostagent.control.security import Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.doctor.clocks import ClockWatch
from mltswitch.hostagent.doctor.conversation import Conversation
from mltswitch.hostagent.doctor.findings import Finding
from mltswitch.hostagent.doctor.messages import (
    MAXIMUM_RUNS,
    PREAMBLE,
    Expect,
    Findings,
    Finish,
    Finished,
    Ready,
    Refuse,
    Run,
    Sent,
    ToldFinding,
    Transmit,
    cut,
    encode,
)
from mltswitch.hostagent.doctor.ports import opened_ports
from mltswitch.hostagent.doctor.settings import DoctorSettings
from mltswitch.hostagent.errors import (
    AgentError,
    DeadlineExceededError,
    PeerRefusedError,
    ProtocolViolationError,
)

EXAMINATION_SECONDS: Final = 300.0
"""Of one examiner; then the next has its turn."""
BUSY: Final = "its doctor examines another host now: try again when that is done"
"""What others are told meanwhile."""
_TURN_SECONDS: Final = 0.2
_LIMITS: Final = ListenerLimits(channels=16, setting_up=16, setting_up_per_address=4)


@dataclass(frozen=True, slots=True)
class Answered:
    """One examination, as the examined side saw it."""

    examiner: str
    sent_datagrams: int
    ignored_datagrams: int
    error: AgentError | None
    """Why it ended early."""

    @property
    def is_finished(self) -> bool:
        """The examiner got what it wanted; else a stranger, perhaps."""
        return self.error is None


class Examined:
    """Listens for examiners; made by `listening`."""

    def __init__(
        self,
        listener: ControlListener,
        settings: DoctorSettings,
        findings: Sequence[Finding],
        refused: Callable[[AgentError], None],
    ) -> None:
        self._listener, self._settings = listener, settings
        self._refused = refused
        self._newcomers: list[_Newcomer] = []
        """Who has not set up a channel yet."""
        self._findings = Findings(
            findings=tuple(
                ToldFinding(
                    subject=cut(entry.subject),
                    status=entry.status,
                    seen=cut(entry.seen),
                    meaning=cut(entry.meaning),
                    remedy=cut(entry.remedy),
                )
                for entry in findings
            )
        )

    @property
    def local(self) -> Endpoint:
        """Where it listens."""
        return self._listener.local

    def serve_one(self, timeout_seconds: float | None = None) -> Answered | None:
        """Wait for an examiner, and let it do its work; None: nobody came in time.

        Raises UserInputError for addresses that this host does not have, MachineError for a taken port.
        """
        with opened_ports(self._settings) as ports:
            newcomer = self._next_channel(timeout_seconds)
            if newcomer is None:
                return None
            error: AgentError | None = None
            conversation = Conversation(
                newcomer.channel, ports, self._settings, said=newcomer.said, is_examiner=False
            )
            try:
                with conversation, self._telling_that_it_is_busy():
                    self._answer(conversation)
            except AgentError as ended:
                error = ended
        return Answered(
            conversation.peer_name,
            conversation.sent_datagrams,
            conversation.ignored_datagrams,
            error,
        )

    def _answer(self, conversation: Conversation) -> None:
        deadline = time.monotonic() + EXAMINATION_SECONDS
        clock = ClockWatch()
        conversation.greet()
        conversation.say(self._findings)
        latest = 0
        while time.monotonic() < deadline:
            match conversation.hear_any():
                case Expect(run=run):
                    latest = _next_number(run, latest, conversation.peer_name)
                    conversation.expect(run)
                    conversation.say(Ready(number=run.number))
                    conversation.say(conversation.collect(conversation.hear(Sent)))
                case Transmit(run=run):
                    latest = _next_number(run, latest, conversation.peer_name)
                    conversation.say(conversation.transmit(run))
                case Finish():
                    change = clock.change()
                    conversation.say(
                        Finished(
                            elapsed_ns=change.elapsed_ns,
                            clock_change_ns=change.change_ns,
                            ignored_datagrams=conversation.ignored_datagrams,
                        )
                    )
                    return
                case message:
                    raise ProtocolViolationError(
                        f"says {message.kind!r} where a run is due", peer=conversation.peer_name
                    )
        raise DeadlineExceededError(
            f"examines for more than {EXAMINATION_SECONDS:g} s", peer=conversation.peer_name
        )

    def _next_channel(self, timeout_seconds: float | None) -> "_Newcomer | None":
        """The first that has set up its channel; strangers that do not wait meanwhile, and end."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while deadline is None or time.monotonic() < deadline:
            opened = next((entry for entry in self._newcomers if entry.channel.is_open), None)
            if opened is not None:
                self._newcomers.remove(opened)
                return opened
            self._wait()
        return None

    @contextmanager
    def _telling_that_it_is_busy(self) -> Iterator[None]:
        """Meanwhile, in a thread: who else comes need not find it out by waiting."""
        is_over = threading.Event()

        def tell() -> None:
            while not is_over.is_set():
                self._wait()
                if is_over.is_set():
                    return  # it is their turn
                # Not before they have spoken: who closes on what was not read takes back its own last words.
                for entry in [entry for entry in self._newcomers if entry.channel.is_open and entry.said]:
                    self._newcomers.remove(entry)
                    self._turn_away(entry.channel)

        with ThreadPoolExecutor(1, "busy doctor") as executor:
            telling = executor.submit(tell)
            try:
                yield
            finally:
                is_over.set()
                telling.result()

    def _turn_away(self, channel: ControlChannel) -> None:
        with suppress(AgentError):  # it leaves anyway
            channel.send(PREAMBLE + encode(Refuse(reason=BUSY)))
        peer = channel.peer or str(channel.remote)
        channel.close()
        self._refused(PeerRefusedError("came while another host was examined, and was told so", peer=peer))

    def _wait(self) -> None:
        """For more newcomers, a little; those that are known are driven on, and dropped where they end."""
        newcomers = self._newcomers
        with selectors.DefaultSelector() as selector:
            if self._listener.wants_read:
                selector.register(self._listener, selectors.EVENT_READ)
            for entry in newcomers:
                write = selectors.EVENT_WRITE if entry.channel.wants_write else 0
                selector.register(entry.channel, selectors.EVENT_READ | write)
            ready = {key.fileobj for key, _ in selector.select(_TURN_SECONDS)}
        now_ns = time.monotonic_ns()
        self._listener.timer(now_ns)
        for entry in newcomers:
            try:
                if entry.channel in ready:
                    entry.said += entry.channel.step(now_ns)
                else:
                    entry.channel.timer(now_ns)
            except AgentError as error:  # `has_ended` says so
                self._refused(error)
        for entry in [entry for entry in newcomers if entry.channel.has_ended]:
            newcomers.remove(entry)
            entry.channel.close()
        if self._listener in ready:
            newcomers += [_Newcomer(channel) for channel in self._listener.accept(now_ns)]

    def close(self) -> None:
        """Forget who still waits, and listen no more."""
        for entry in self._newcomers:
            entry.channel.close()
        self._newcomers.clear()
        self._listener.close()


@dataclass(slots=True, eq=False)
class _Newcomer:
    channel: ControlChannel
    said: bytes = b""


def _next_number(run: Run, latest: int, peer: str) -> int:
    """Runs are numbered upwards, so that a late datagram of one is not counted in another."""
    if not latest < run.number <= MAXIMUM_RUNS:
        raise ProtocolViolationError(f"run {run.number} after run {latest}", peer=peer)
    return run.number


def _ignore(_error: AgentError) -> None:
    """Nobody asks who was refused."""


@contextmanager
def listening(
    local: Endpoint,
    security: Security,
    channel_settings: ChannelSettings,
    settings: DoctorSettings,
    findings: Sequence[Finding],
    refused: Callable[[AgentError], None] = _ignore,
) -> Iterator[Examined]:
    """`refused`: told of whoever came, and did not get as far as an examination; in any thread.

    Raises UserInputError or MachineError where nobody can listen there.
    """
    examined = Examined(
        ControlListener(local, security, channel_settings, _LIMITS), settings, findings, refused
    )
    try:
        yield examined
    finally:
        examined.close()
