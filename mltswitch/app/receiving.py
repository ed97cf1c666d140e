"""The receiver's end of an exchange: a tensor from one or more peers, into files."""

import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch import outputs
from mltswitch.app import Tell
from mltswitch.app.arrays import write_array
from mltswitch.app.transfer import FIRST_ROUND, MOST_ROUNDS, TENSOR, Announcement, Exchange, Round
from mltswitch.errors import UserInputError, printable
from mltswitch.hostagent import CancelledError, Transfer
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerConnected, PeerLost
from mltswitch.units import format_bytes

ROUND: Final = "{round}"
"""Placeholder in a pattern of file names for the number of the round."""
PEER: Final = "{peer}"
BRACES: Final = re.compile(r"\{[^{}]*\}?|\}")
"""Pattern of whole placeholders, and of the remains of broken ones."""
GOODBYE_SECONDS: Final = 5.0
"""Seconds to wait until senders have heard that their last round is complete."""


@dataclass(kw_only=True, eq=False)
class Receiving(Exchange):
    """The receiver's end of an exchange, which also observes its agent's events."""

    pattern: str | None
    """Pattern of the names of files that tensors are kept in; None: nothing is kept."""
    most_bytes: int
    """The most bytes of memory for all tensors together."""
    names: tuple[str, ...]
    """Names of the peers that may connect; empty at first where it is whoever comes first."""
    takes_first: bool
    bounds: dict[str, Any]
    """Options for posting each receive buffer, such as loss bounds."""
    tell_stranger: Tell
    """Called with a line about peers that come or go, which anybody can cause."""
    last_words: Tell
    """Called with the lines on which files were written."""
    is_waiting: bool = True
    announced: dict[str, Announcement] = field(default_factory=dict)
    buffers: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    written: dict[str, dict[str, int]] = field(default_factory=dict)
    """Name of a peer → its files, and the round in each."""
    _last: dict[str, int] = field(default_factory=dict)
    """Rounds that are complete, and not on the disk yet."""

    def admit(self, peer: str) -> str | None:
        """Why a peer is rejected; None: it is accepted."""
        if peer in self.names or not self.names:
            return None
        return f"{peer} " + ("comes too late" if self.takes_first else "is not expected here (--from)")

    def observe(self, event: AgentEvent) -> None:
        """Report peers that come or go, until all have announced their tensors."""
        match event:
            case PeerConnected() if self.is_waiting:
                self.names = self.names or (event.peer,)
                self.tell_stranger(f"connected: {event.peer}")
            case PeerLost() if self.is_waiting:
                self.tell_stranger(f"not connected: {event.peer}: {event.reason}")
                if self.takes_first and self.names == (event.peer,):
                    self.names = ()

    def begin(self) -> Mapping[str, int]:
        """Wait for the peers and for their announcements; returns the number of rounds with each."""
        wait_seconds = self.options.wait_seconds
        until = time.monotonic() + wait_seconds
        self.options.tell(f"{self.agent.name} listens at {self.agent.listening_at}")
        who = ", ".join(self.names) or "the first who connects"
        self.options.tell(f"waiting for {who}, up to {wait_seconds:g} s")
        names = self.names or (self.agent.wait_for_any_peer(wait_seconds),)
        self.agent.wait_for_peers(names, wait_seconds)
        for peer in names:
            message = self.agent.receive_message(peer, max(0.0, until - time.monotonic()))
            self.announced[peer] = Announcement.decoded(message, peer)
        self.names, self.is_waiting = names, False
        self._allocate()
        return {peer: self.announced[peer].rounds for peer in self.buffers}

    def _allocate(self) -> None:
        """Who announces more than there is room for fails in its first round, and alone."""
        left = self.most_bytes
        for peer in self.names:
            found = self.announced[peer]
            copies = 2 if self._keeps_last and found.rounds > 1 else 1
            size_bytes = copies * found.size_bytes
            why = f"{format_bytes(self.most_bytes)} may be used in all" if size_bytes > left else ""
            try:
                memory = [] if why else [np.zeros(found.shape, found.dtype) for _ in range(copies)]
            except MemoryError as error:
                why = str(error)
            if not why:
                self.buffers[peer], left = memory, left - size_bytes
                continue
            text = f"no memory for {format_bytes(size_bytes)} that were announced: {why}"
            refused = CancelledError(text, peer=peer, tensor=TENSOR, round_number=FIRST_ROUND)
            self.note(peer, Round(FIRST_ROUND, refused))
            self.agent.disconnect(peer, refused.what)

    def _buffer(self, peer: str, number: int) -> NDArray[Any]:
        return self.buffers[peer][number % len(self.buffers[peer])]

    def post(self, peer: str, number: int) -> Transfer:
        """Post the receive buffer of a peer's round."""
        options = {"element_type": self.announced[peer].element_type, **self.bounds}
        buffer = self._buffer(peer, number)
        return self.agent.post_receive(peer, buffer, tensor=TENSOR, round_number=number, **options)

    @property
    def _keeps_last(self) -> bool:
        return self.pattern is not None and ROUND not in self.pattern

    def completed(self, peer: str, number: int) -> None:
        """Write the file of a peer's round, or remember that the round is the last so far."""
        if self._keeps_last:
            self._last[peer] = number
        elif self.pattern is not None:
            self._write(peer, number)

    def _write(self, peer: str, number: int) -> None:
        name = _named(str(self.pattern), peer, number)
        write_array(Path(name), self._buffer(peer, number))
        self.written.setdefault(peer, {})[name] = number

    def end(self) -> None:
        """Write the remaining files. Senders leave once they know that their last round is complete."""
        is_early = sys.exc_info()[0] is not None
        problems: list[UserInputError] = []
        for peer, number in self._last.items():
            try:
                self._write(peer, number)
            except UserInputError as error:  # the other files are written
                problems.append(error)
        for peer in self.written:
            for name, number in self.written[peer].items():
                self.last_words(f"written: {printable(name)} (round {number})")
        for problem in problems:
            raise problem
        until = time.monotonic() + (0 if is_early else GOODBYE_SECONDS)
        complete = {peer for peer, rounds in self.rounds.items() if rounds[-1].error is None}
        while complete & {*self.agent.peers} and time.monotonic() < until:
            time.sleep(0.005)

    def described(self) -> dict[str, Any]:
        """What each peer announced and its files, for the printed document."""
        peers: dict[str, dict[str, Any]] = {}
        for peer in () if self.is_waiting else self.names:
            found = self.announced[peer]
            about = {"tensor": TENSOR, "element_type": found.element_type, "shape": found.shape}
            peers[peer] = about | {"size_bytes": found.size_bytes, "files": list(self.written.get(peer, ()))}
        return {"direction": "receive", "peers": peers} if peers else {}


def check_output(output: str, peers: Sequence[str]) -> None:
    """Raise UserInputError for output files that cannot be written, before anything is received."""
    strange = [braces for braces in BRACES.findall(output) if braces not in {PEER, ROUND}]
    problem = ""
    if len(peers) > 1 and PEER not in output:
        problem = f"one file for the tensors of {len(peers)} peers: write {PEER} into its name"
    elif strange:
        problem = f"nothing stands for {strange[0][:60]}: write {PEER}, {ROUND}, or no braces"
    if problem:
        raise UserInputError(problem, where="--output")
    for peer in peers or (PEER,):  # where nobody says who sends, folders must have nobody's name
        outputs.check_output(Path(_named(output, peer, MOST_ROUNDS)))


def _named(pattern: str, peer: str, number: int) -> str:
    return pattern.replace(ROUND, str(number)).replace(PEER, peer)
