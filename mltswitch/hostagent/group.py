"""All ranks of a job, connected with each other: what torchrun and the like start.

with Group(rank, world, "env://") as group:
    group.agent.post_send(group.peer(1), gradients, tensor=7)
"""

import asyncio
import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, Field, ValidationError

from mltswitch.errors import UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.endpoint import Endpoint, parse_endpoint
from mltswitch.hostagent.errors import AgentError, DeadlineExceededError

MOST_LINE_BYTES: Final = 4096
"""Of what a rank says of itself; strangers may call, too."""
MOST_ANSWER_BYTES: Final = 8 << 20
SPARE_CALLS: Final = 64
"""Beyond one for each rank, at the same time."""
LINE_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 1.0
"""Beyond the deadline, so that rank 0 can say who is missing."""
Exchange = Callable[[str], list[str]]


class _Entry(BaseModel):
    """What a rank says of itself."""

    rank: Annotated[int, Field(ge=0)]
    name: Annotated[str, Field(min_length=1, max_length=63)]
    endpoint: Annotated[str, Field(max_length=100)]


class Group:
    """This rank's agent, and the names of all.

    Args:
        rank: of this process, from 0; None: as the environment variable RANK says.
        world: how many ranks there are; None: WORLD_SIZE.
        rendezvous: `env://` (rank 0 listens at MASTER_ADDR, and the port after MASTER_PORT or the one that
            MLTSWITCH_RENDEZVOUS_PORT names), `file:///PATH` (shared, and new for each run), or a function
            that gets this rank's text and returns all ranks' texts.
        config: without keys and plan the agent's name is the host's with the rank behind it, so that ranks of
            one host differ; without `listen` it takes any free port.
        timeout_seconds: until all are connected.

    Raises UserInputError, MachineError, or DeadlineExceededError that names the ranks that did not come.
    """

    def __init__(
        self,
        rank: int | None,
        world: int | None,
        rendezvous: str | Exchange,
        *,
        config: AgentConfig | None = None,
        timeout_seconds: float = 60.0,
    ) -> None:
        self.rank: Final = _number("RANK") if rank is None else rank
        self.world: Final = _number("WORLD_SIZE") if world is None else world
        if not 0 <= self.rank < self.world:
            raise UserInputError(f"is {self.rank} of {self.world}", where="rank", expected="0 to world - 1")
        self._until = time.monotonic() + timeout_seconds
        self.agent: Final = Agent(_of_rank(config or AgentConfig(), self.rank))
        try:
            entries = self._meet(rendezvous)
            self.names: Final = tuple(entry.name for entry in entries)
            """By rank."""
            self._connect(entries)
        except BaseException:
            self.agent.close()
            raise

    def peer(self, rank: int) -> str:
        """The name of a rank."""
        return self.names[rank]

    def close(self) -> None:
        """Say goodbye to all."""
        self.agent.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _meet(self, rendezvous: str | Exchange) -> list[_Entry]:
        at = self.agent.listening_at
        address = self.agent.config.addresses[0] if at.ip.is_unspecified else at.address
        endpoint = str(Endpoint(address, at.port))
        own = _Entry(rank=self.rank, name=self.agent.name, endpoint=endpoint).model_dump_json()
        if callable(rendezvous):
            texts = rendezvous(own)
        elif rendezvous == "env://":
            texts = self.agent.engine.run(self._by_environment(own), self._left() + 2 * LINE_SECONDS)
        elif rendezvous.startswith("file:///"):
            texts = self._by_file(Path(rendezvous.removeprefix("file://")), own)
        else:
            raise UserInputError(
                f"{rendezvous!r:.60}", where="rendezvous", expected="env://, file:///PATH or a function"
            )
        entries = {entry.rank: entry for entry in map(_entry, texts)}
        if sorted(entries) != list(range(self.world)):
            raise self._missing(entries)
        twice = [name for name, count in Counter(each.name for each in entries.values()).items() if count > 1]
        if twice:
            ranks = ", ".join(str(rank) for rank, entry in entries.items() if entry.name == twice[0])
            raise UserInputError(f"is the name of ranks {ranks}", where=twice[0], expected="different names")
        return [entries[rank] for rank in range(self.world)]

    def _connect(self, entries: list[_Entry]) -> None:
        """The lesser name calls, the other one waits."""
        problem = ""
        try:
            for entry in entries:
                if entry.name > self.agent.name:
                    self.agent.connect(entry.name, entry.endpoint, timeout_seconds=self._left())
            self.agent.wait_for_peers(set(self.names) - {self.agent.name}, self._left())
        except AgentError as error:
            problem = str(error)
        if problem:
            here = {self.agent.name, *self.agent.peers}
            raise self._missing([entry.rank for entry in entries if entry.name in here], problem)

    def _by_file(self, path: Path, own: str) -> list[str]:
        """A line for each rank."""
        while True:
            with path.open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                lines = file.read().splitlines()
                if own not in lines:
                    if any(_entry(line).rank == self.rank for line in lines):
                        raise UserInputError(
                            f"rank {self.rank} has been there already", where=str(path), expected="a new file"
                        )
                    file.write(f"{own}\n")
                    lines.append(own)
            if len(lines) >= self.world:
                return lines
            if not self._left():
                raise self._missing(_entry(line).rank for line in lines)
            time.sleep(PAUSE_SECONDS)

    async def _by_environment(self, own: str) -> list[str]:
        """Rank 0 hears a line from each of the others, and answers with all of them."""
        port = os.environ.get("MLTSWITCH_RENDEZVOUS_PORT")
        place = _variable("MASTER_ADDR"), int(port) if port else _number("MASTER_PORT") + 1
        return await (self._serve(*place, own) if self.rank == 0 else self._ask(*place, own))

    async def _serve(self, host: str, port: int, own: str) -> list[str]:
        lines, writers = {0: own}, dict[int, asyncio.StreamWriter]()
        unheard: set[asyncio.StreamWriter] = set()
        heard = asyncio.Event()

        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            unheard.add(writer)
            try:
                if len(unheard) > self.world + SPARE_CALLS:
                    raise ValueError("too many calls")  # noqa: TRY301  (as all that is wrong)
                line = (await asyncio.wait_for(reader.readline(), LINE_SECONDS)).decode()
                rank = _entry(line).rank
                if not 0 < rank < self.world:
                    raise ValueError("no such rank")  # noqa: TRY301
            except (ValueError, OSError, UserInputError, TimeoutError):
                writer.close()  # a stranger
            else:
                lines[rank], writers[rank] = line.strip(), writer
                heard.set()
            finally:
                unheard.discard(writer)

        try:
            server = await asyncio.start_server(hear, host, port, limit=MOST_LINE_BYTES)
        except OSError as error:
            raise UserInputError(f"rank 0 cannot listen there: {error}", where="env://") from None
        async with server:
            with suppress(TimeoutError):  # whoever is here is told who is missing
                while len(lines) < self.world:
                    heard.clear()
                    await asyncio.wait_for(heard.wait(), self._left())
            for writer in writers.values():
                writer.write(json.dumps([*lines.values()]).encode() + b"\n")
                writer.close()  # after all is written
        return [*lines.values()]

    async def _ask(self, host: str, port: int, own: str) -> list[str]:
        problem = "does not answer"
        while self._left():
            with suppress(OSError, TimeoutError, ValueError, UserInputError):
                async with asyncio.timeout(self._left() + PATIENCE_SECONDS):
                    reader, writer = await asyncio.open_connection(host, port, limit=MOST_ANSWER_BYTES)
                    try:
                        problem = "waits for others"
                        writer.write(own.encode() + b"\n")
                        return [str(line) for line in json.loads(await reader.readline())]
                    finally:
                        writer.close()
            await asyncio.sleep(PAUSE_SECONDS)
        raise DeadlineExceededError(f"rank 0 at {host}:{port} {problem}")

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _missing(self, here: Iterable[int], why: str = "") -> DeadlineExceededError:
        ranks = sorted(set(range(self.world)) - set(here))
        shown = ", ".join(map(str, ranks[:16])) + (", …" if len(ranks) > 16 else "")
        return DeadlineExceededError(f"ranks that did not come: {shown}{f' ({why})' if why else ''}")


def _of_rank(config: AgentConfig, rank: int) -> AgentConfig:
    changes: dict[str, object] = {}
    if config.keys is None and config.plan is None:
        changes["name"] = f"{config.own_name}-{rank}"
    if config.listen is None and config.plan is None:
        changes["listen"] = str(Endpoint(config.addresses[0] if config.addresses else "127.0.0.1", 0))
    return config.model_copy(update=changes)


def _entry(text: str) -> _Entry:
    try:
        entry = _Entry.model_validate_json(text)
        parse_endpoint(entry.endpoint)
    except (ValidationError, ValueError):
        raise UserInputError(f"{text!r:.80} is nothing that a rank says", where="rendezvous") from None
    return entry


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise UserInputError("is not set", where=name, expected="as torchrun sets it")
    return value


def _number(name: str) -> int:
    value = _variable(name)
    if not value.isdecimal():
        raise UserInputError(f"{value!r:.40} is no number", where=name)
    return int(value)
