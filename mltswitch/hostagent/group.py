"""All ranks of a job, connected with each other, for programs started by torchrun and the like.

with Group(rank, world, "env://") as group:
    group.agent.post_send(group.peer(1), gradients, tensor=7)
"""

import asyncio
import fcntl
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from mltswitch.errors import MachineError, MltswitchError, UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.endpoint import Endpoint, parse_endpoint
from mltswitch.hostagent.errors import AgentError, DeadlineExceededError, PeerBusyError, RanksMissingError
from mltswitch.hostagent.streams import CANNOT_LISTEN
from mltswitch.outputs import write_atomically

MOST_ANSWER_BYTES: Final = 8 << 20
LINE_SECONDS: Final = 5.0
"""Seconds for a rank to say who it is to rank 0 and, past the deadline, for rank 0 to say who is missing."""
PAUSE_SECONDS: Final = 0.05
FILE: Final = "file:///"
FIND_SECONDS: Final = 1.0
"""Seconds for one rank to answer a rank that returns."""


class _Entry(BaseModel):
    """What a rank says of itself."""

    rank: Annotated[int, Field(ge=0)]
    world: int
    name: Annotated[str, Field(min_length=1, max_length=63)]
    endpoint: Annotated[str, Field(max_length=100), AfterValidator(lambda text: str(parse_endpoint(text)))]
    problem: Annotated[str, Field(max_length=1000)] = ""
    """Why this rank cannot start; name and endpoint then mean nothing."""


class Group:
    """This rank's agent, connected with the agents of all other ranks, and the names of all.

    Args:
        rank: number of this process, from 0; None: that of the environment variable RANK.
        world: how many ranks there are; None: the environment variable WORLD_SIZE.
        rendezvous: `env://` (rank 0 listens at MASTER_ADDR and the port after MASTER_PORT), `file:///PATH`
            (shared, new for each run), or a function that gets this rank's text and returns all ranks'.
        config: without keys, plan and routes of `p4` the agent's name is the host's with the rank behind it,
            so that ranks of one host differ; without `listen`, or where its port is taken, it takes any.
        timeout_seconds: limit of the time until all ranks are connected.
        returns: this rank has been there before, by a file, and the others have gone on without it: it takes
            its former place and name, and connects with whoever is there.

    Raises UserInputError, also where a rank is there already or ranks disagree on the world's size,
    MachineError, RanksMissingError, or DeadlineExceededError where rank 0 does not answer.
    """

    def __init__(
        self,
        rank: int | None,
        world: int | None,
        rendezvous: str | Callable[[str], list[str]],
        *,
        config: AgentConfig | None = None,
        timeout_seconds: float = 60.0,
        returns: bool = False,
    ) -> None:
        self.rank: Final = _number("RANK") if rank is None else rank
        self.world: Final = _number("WORLD_SIZE") if world is None else world
        if not 0 <= self.rank < self.world:
            raise UserInputError(f"is {self.rank} of {self.world}", where="rank", expected="0 to world - 1")
        self._until = time.monotonic() + timeout_seconds
        self.absent: frozenset[int] = frozenset()
        """Ranks that one which returns does not find."""
        chosen = _of_rank(config or AgentConfig(), self.rank)
        former = self._former(rendezvous) if returns else {}
        if former and chosen.keys is None:  # the name by which the others know this rank
            chosen = chosen.model_copy(update={"name": former[self.rank].name})
        try:
            self.agent: Final = _agent_of(chosen)
        except MltswitchError as error:
            if callable(rendezvous):  # else the others would wait for this rank
                rendezvous(self._entry(f"rank {self.rank}", "127.0.0.1:1", str(error)[:1000]))
            raise
        try:
            entries = [*former.values()] if former else self._meet(rendezvous)
            self.names: Final = tuple(entry.name for entry in entries)
            """By rank."""
            if former:
                self._return(entries, _path(str(rendezvous)))
            else:
                self._connect(entries)
        except BaseException:
            self.agent.close()
            raise

    def peer(self, rank: int) -> str:
        """The agent's name of another rank."""
        return self.names[rank]

    def close(self) -> None:
        """Say goodbye to all ranks and close the agent."""
        self.agent.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _own(self) -> str:
        at = self.agent.listening_at
        address = self.agent.config.addresses[0] if at.ip.is_unspecified else at.address
        return self._entry(self.agent.name, str(Endpoint(address, at.port)))

    def _meet(self, rendezvous: str | Callable[[str], list[str]]) -> list[_Entry]:
        own = self._own()
        if callable(rendezvous):
            texts = rendezvous(own)
        elif rendezvous == "env://":
            host, port = _variable("MASTER_ADDR"), _number("MASTER_PORT") + 1
            if not 1 < port < 1 << 16:
                raise UserInputError(f"is {port - 1}", where="MASTER_PORT", expected="1 to 65534")
            work = self._ask(host, port, own) if self.rank else self._serve(host, port, own)
            texts = self.agent.engine.run(work, self._left() + 2 * LINE_SECONDS)
        elif rendezvous.startswith(FILE):
            texts = self._by_file(_path(rendezvous), own)
        else:
            expected = "env://, file:///PATH or a function"
            raise UserInputError(f"{rendezvous!r:.60}", where="rendezvous", expected=expected)
        entries = {entry.rank: entry for entry in map(self._agreeing, texts)}
        if sorted(entries) != [*range(self.world)]:
            raise self._missing(entries)
        if len({entry.name for entry in entries.values()}) < self.world:
            raise UserInputError("two ranks have one name", where="rendezvous", hint="give each its own keys")
        return [entries[rank] for rank in range(self.world)]

    def _connect(self, entries: list[_Entry]) -> None:
        """The lesser name calls, the other one waits."""
        try:
            for entry in entries:
                if entry.name > self.agent.name:
                    self.agent.connect(entry.name, entry.endpoint, timeout_seconds=self._left())
            # One that needs nothing of the others, or has failed, may have left again: posts to it tell that.
            self.agent.wait_for_peers(set(self.names) - {self.agent.name}, self._left(), or_left=True)
        except AgentError as error:
            here = {self.agent.name, *self.agent.peers}
            ranks = [entry.rank for entry in entries if entry.name in here]
            raise self._missing(ranks, f" ({error})") from None

    def _former(self, rendezvous: str | Callable[[str], list[str]]) -> dict[int, _Entry]:
        """All ranks, as the file of their start has them, or of the last one that returned."""
        if callable(rendezvous) or not rendezvous.startswith(FILE):
            raise UserInputError("keeps no ranks", where="rendezvous", expected="file:///PATH of the others")
        former = {entry.rank: entry for entry in map(self._agreeing, _lines(_path(rendezvous)))}
        if sorted(former) != [*range(self.world)]:
            problem, hint = f"has {len(former)} of {self.world} ranks", "it is the file of all ranks' start"
            raise UserInputError(problem, where=str(_path(rendezvous)), hint=hint)
        return {rank: former[rank] for rank in range(self.world)}

    def _return(self, entries: list[_Entry], path: Path) -> None:
        """Finds the others, and then says in the file where it is; who returns meanwhile is found, too."""
        self._find(entry for entry in entries if entry.rank != self.rank)
        if not self.agent.peers:
            raise self._missing([self.rank], ": nobody is there who could take this one in")
        with _usable(path), Path(f"{path}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            others = [entry for entry in map(_entry, _lines(path)) if entry.rank != self.rank]
            lines = [*(entry.model_dump_json() for entry in others), self._own()]
            write_atomically(path, "".join(f"{line}\n" for line in lines))
        self._find(entry for entry in others if entry not in entries)
        here = {entry.rank for entry in entries if entry.name in self.agent.peers}
        self.absent = frozenset(range(self.world)) - here - {self.rank}

    def _find(self, entries: Iterable[_Entry]) -> None:
        """Calls them; some may still hold this rank's former connection, until they notice its silence."""
        waiting = deque(entries)
        while waiting:
            entry = waiting.popleft()
            try:
                self.agent.connect(entry.name, entry.endpoint, timeout_seconds=FIND_SECONDS)
            except PeerBusyError:
                if self._left():
                    waiting.append(entry)
            except AgentError:
                pass  # it is gone, too

    def _entry(self, name: str, endpoint: str, problem: str = "") -> str:
        own = _Entry(rank=self.rank, world=self.world, name=name, endpoint=endpoint, problem=problem)
        return own.model_dump_json()

    def _agreeing(self, text: str) -> _Entry:
        entry = _entry(text)
        if entry.problem:
            raise UserInputError(entry.problem, where=f"rank {entry.rank}")
        if entry.world != self.world:
            raise UserInputError(
                f"rank {self.rank} is one of {self.world}, rank {entry.rank} one of {entry.world}",
                where="world",
                expected="one size for all ranks",
            )
        return entry

    def _by_file(self, path: Path, own: str) -> list[str]:
        """A line for each rank."""
        while True:
            with _usable(path):
                lines = self._entered(path, own)
            if len(lines) >= self.world:
                return lines
            if not self._left():
                raise self._missing(_entry(line).rank for line in lines)
            time.sleep(PAUSE_SECONDS)

    def _entered(self, path: Path, own: str) -> list[str]:
        """The lines of all that are in the file, this rank's with them."""
        with path.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            lines = file.read().splitlines()
            if own not in lines:
                if any(self._agreeing(line).rank == self.rank for line in lines):
                    raise UserInputError(f"rank {self.rank} has been there already", where=str(path))
                file.write(f"{own}\n")
                lines.append(own)
        return lines

    async def _serve(self, host: str, port: int, own: str) -> list[str]:
        """Rank 0 hears a line from each of the others, and answers with all of them, or why not."""
        lines, writers, is_complete = {0: own}, dict[int, asyncio.StreamWriter](), asyncio.Event()

        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with closing(writer), suppress(ValueError, OSError, UserInputError):  # a stranger's
                line = (await asyncio.wait_for(reader.readline(), LINE_SECONDS)).decode().strip()
                entry = _entry(line)
                rank, problem = entry.rank, ""
                if entry.world != self.world or rank >= self.world:
                    problem = f"rank {rank} is one of {entry.world}, rank 0 one of {self.world}"
                elif lines.get(rank, line) != line:  # the same one: it calls anew
                    problem = f"rank {rank} is there already, as {_entry(lines[rank]).name}"
                if problem:
                    writer.write(json.dumps({"refused": problem}).encode() + b"\n")
                    return
                lines[rank], writers[rank] = line, writer
                if len(lines) == self.world:
                    is_complete.set()
                await reader.read(1)  # until it leaves, or has its answer
                if writers.get(rank) is writer and not is_complete.is_set():
                    del lines[rank], writers[rank]

        try:
            server = await asyncio.start_server(hear, host, port, limit=4096)
        except OSError as error:
            raise UserInputError(f"rank 0 cannot listen there: {error}", where="env://") from None
        async with server:
            if self.world > 1:
                with suppress(TimeoutError):  # whoever is here is told who is missing
                    await asyncio.wait_for(is_complete.wait(), self._left())
            texts = [*lines.values()]
            for writer in writers.values():
                writer.write(json.dumps(texts).encode() + b"\n")
                writer.close()
        return texts

    async def _ask(self, host: str, port: int, own: str) -> list[str]:
        while self._left():
            with suppress(OSError, ValueError):
                async with asyncio.timeout(self._left() + LINE_SECONDS):
                    reader, writer = await asyncio.open_connection(host, port, limit=MOST_ANSWER_BYTES)
                    with closing(writer):
                        writer.write(own.encode() + b"\n")
                        answer = json.loads(await reader.readline())
                        if isinstance(answer, dict):
                            raise UserInputError(shorten(str(answer.get("refused")), 200), where="env://")
                        return [str(line) for line in answer]
            await asyncio.sleep(PAUSE_SECONDS)
        raise DeadlineExceededError(f"rank 0 at {host}:{port} does not say who is there")

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _missing(self, here: Iterable[int], why: str = "") -> RanksMissingError:
        ranks = sorted(set(range(self.world)) - set(here))
        names = shorten(", ".join(map(str, ranks)), 80, placeholder=" …")
        error = RanksMissingError(f"ranks that did not come: {names}{why}")
        error.ranks = ranks
        return error


def was_there(rendezvous: str, rank: int) -> bool:
    """Whether the rendezvous file lists this rank already, so that this process is a restart and `returns`.

    Raises UserInputError for a file that is no rendezvous.
    """
    if not rendezvous.startswith(FILE):
        raise UserInputError(f"{rendezvous!r:.60}", where="rendezvous", expected="file:///PATH")
    return any(_entry(line).rank == rank for line in _lines(_path(rendezvous)))


def _path(rendezvous: str) -> Path:
    return Path(rendezvous.removeprefix("file://"))


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or "is no text"
        raise UserInputError(f"cannot be used: {what}", where=str(path)) from None


def _lines(path: Path) -> list[str]:
    """Of a file that others write to; none where it is not there."""
    with _usable(path):
        if not path.exists():
            return []
        with path.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return file.read().splitlines()


def _agent_of(config: AgentConfig) -> Agent:
    """At another port where the file's is taken, by another group of this process say: ranks tell theirs."""
    try:
        return Agent(config)
    except MachineError as error:
        if not error.what.startswith(CANNOT_LISTEN):
            raise
        address = config.resolved(Path()).listen_at.address
        return Agent(config.model_copy(update={"listen": str(Endpoint(address, 0))}))


def _of_rank(config: AgentConfig, rank: int) -> AgentConfig:
    changes = {}
    # The routes of p4 name hosts.
    if config.keys is None and config.plan is None and config.spraying.mode != "p4":
        changes["name"] = f"{config.own_name}-{rank}"
    if config.listen is None and config.plan is None:
        changes["listen"] = str(Endpoint((*config.addresses, "127.0.0.1")[0], 0))
    return config.model_copy(update=changes)


def _entry(text: str) -> _Entry:
    try:
        return _Entry.model_validate_json(text)
    except ValidationError:
        raise UserInputError(f"{text!r:.80} is nothing that a rank says", where="rendezvous") from None


def _number(name: str) -> int:
    try:
        return int(_variable(name))
    except ValueError:
        raise UserInputError("is no number", where=name) from None


def _variable(name: str) -> str:
    if value := os.environ.get(name):
        return value
    raise UserInputError("is not set", where=name, expected="as torchrun sets it")
