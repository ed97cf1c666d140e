"""Files of received tensors: which there will be, and what became of them."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from mltswitch.cli.agent_options import reason_of
from mltswitch.cli.arrays import check_writable, write_array
from mltswitch.cli.output import last_words
from mltswitch.errors import MltswitchError, UserInputError, printable
from mltswitch.hostagent.announced import MAXIMUM_ROUNDS, ExchangeResult
from mltswitch.hostagent.errors import AgentError

ROUND: Final = "{round}"
"""In a name of files: each round has its own."""
PEER: Final = "{peer}"
RUN_TOGETHER: Final = re.compile(r"\{peer\}\d*\{round\}|\{round\}\d*\{peer\}")
"""Nobody can tell where the one ends and the other begins."""
BRACES: Final = re.compile(r"\{[^{}]*\}?|\}")
"""Whole placeholders, and what is left of broken ones."""


class Files:
    """Where what arrives is kept."""

    def __init__(self, pattern: str | None) -> None:
        """`pattern`: with placeholders; None: nothing is kept."""
        self._pattern = pattern
        self._each_round = pattern is not None and ROUND in pattern
        self._last: dict[str, tuple[int, NDArray[Any]]] = {}
        """Complete, and not on the disk yet."""
        self._rounds: dict[str, int] = {}
        """File → the round in it, where its name does not say it."""
        self._refused: dict[str, UserInputError] = {}
        """Why files could not be written."""
        self.written: dict[str, list[str]] = {}
        """Names of files, by peer."""

    def keep(self, peer: str, number: int, data: NDArray[Any]) -> None:
        """A round is complete; raises UserInputError where its file cannot be written."""
        if self._each_round:
            self._write(peer, number, data)
        elif self._pattern is not None:
            self._last[peer] = number, data

    def write_last(self) -> None:
        """The last complete round of each peer; raises UserInputError for the first file that cannot be
        written, after the others."""
        for peer, (number, data) in list(self._last.items()):
            try:
                self._rounds[self._write(peer, number, data)] = number
            except UserInputError:
                continue  # of which `_refused` knows
            del self._last[peer]
        for error in self._refused.values():
            raise error

    @contextmanager
    def written_at_the_end(self) -> Iterator[None]:
        """When interrupted, or when the agent fails, nothing that was complete is lost; a second Ctrl-C waits
        for no disk (`tell_lost`)."""
        try:
            try:
                yield
            except (AgentError, KeyboardInterrupt, SystemExit):
                self.write_last()
                raise
        except (MltswitchError, KeyboardInterrupt, SystemExit):
            for name, number in self._rounds.items():
                last_words(f"written: {printable(name)} (round {number})")
            raise

    def tell_lost(self, result: ExchangeResult, error: BaseException) -> None:
        """On standard error: tensors that were complete and are in no file, where `error` ends the run."""
        if self._pattern is None:
            return
        there = {name for names in self.written.values() for name in names}
        lost = {
            name: entry.round_number
            for entry in result.rounds
            if entry.error is None
            and (name := _named(self._pattern, entry.peer, entry.round_number)) not in there
        }
        for name, number in lost.items():
            reason = self._refused.get(name)
            if reason is not error:  # which is a line of its own
                why = reason_of(reason or error)
                last_words(f"not written: {printable(name)} (round {number} was complete): {why}")

    def round_in(self, name: str, rounds: int) -> str:
        """To be added to a file's name where it is not the last round that was sent."""
        number = self._rounds.get(name, rounds)
        return "" if number == rounds else f" (round {number} of {rounds})"

    def _write(self, peer: str, number: int, data: NDArray[Any]) -> str:
        name = _named(str(self._pattern), peer, number)
        try:
            write_array(Path(name), data)
        except UserInputError as error:
            self._refused[name] = error
            raise
        names = self.written.setdefault(peer, [])
        if name not in names[-1:]:  # who is interrupted as it ends writes it once more
            names.append(name)
        return name


def check_output(output: str | None, peers: Sequence[str]) -> None:
    """Raises UserInputError for files that are sure not to be written, before anything is received."""
    if output is None:
        return
    if len(peers) > 1 and PEER not in output:
        raise UserInputError(
            f"one file for the tensors of {len(peers)} peers", where="--output", expected="a name with {peer}"
        )
    for braces in BRACES.findall(output):
        if braces not in {PEER, ROUND}:
            raise UserInputError(
                f"nothing stands for {braces[:60]}",
                where="--output",
                expected=f"{PEER}, {ROUND}, or no braces",
            )
    if not output or output.endswith("/"):
        raise UserInputError(f"{output!r} names no file", where="--output", expected=f"{output}FILE.npy")
    if len(peers) > 1 and RUN_TOGETHER.search(output):
        raise UserInputError(
            f"{output!r} may name the same file for several peers and rounds",
            where="--output",
            expected=f"something else than digits between {PEER} and {ROUND}",
        )
    places: dict[str, str] = {}
    # Where nobody says who sends, folders must have nobody's name.
    for peer in peers or (PEER,):
        name = _named(output, peer, MAXIMUM_ROUNDS)
        check_writable(Path(name))
        # A link is followed, and may lead where nothing can be written, or to another peer's file.
        place = os.path.realpath(name)
        check_writable(Path(place))
        if place in places:
            raise UserInputError(f"is the same file as {places[place]}", where=name)
        places[place] = name


def _named(pattern: str, peer: str, number: int) -> str:
    return pattern.replace(ROUND, str(number)).replace(PEER, peer)
