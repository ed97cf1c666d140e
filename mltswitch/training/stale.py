"""A model that workers share with bounded staleness: push, pull, clock (MLNET, section 3).

    with SharedModel(values, rank, world, "env://", topology_settings={"in_degree": 4}) as model:
        for batch in batches:
            model.push(-rate * gradient(model.pull(staleness=3), batch))
            model.clock()
        values = model.flush()

Nobody names a host: who adds up on the way, and who answers, is the topology's.
"""

import logging
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from mltswitch.errors import MOST_LISTED, UserInputError
from mltswitch.hostagent import AgentConfig, Group
from mltswitch.training.axes import Crossing, Elements, Post
from mltswitch.training.caches import OVER, Caches, shape_of
from mltswitch.training.driver import MEETING_SECONDS, Driver
from mltswitch.training.errors import NodeLateError, TrainingError, ending_of
from mltswitch.training.job import DEADLINE_SECONDS, ELEMENT_BYTES, PIECE_BYTES, Job, make_job
from mltswitch.training.participant import Participant
from mltswitch.units import NANOSECONDS

_log: Final = logging.getLogger(__name__)


class StaleNode(Participant):
    """A worker under bounded staleness, with the caches of all trees that it is in.

    Args:
        values: the parameters that all nodes begin with.

    Raises UserInputError for a topology without trees.
    """

    def __init__(self, job: Job, number: int, values: Elements) -> None:
        super().__init__(job, number)
        self._fingerprints |= {"values": f"{zlib.crc32(np.ascontiguousarray(values).data):x}"}
        self._words.clear()
        self._say(job=self._fingerprints)
        self.caches: Final = Caches(job, number, shape_of(job), values)
        self._clock = 0
        self._waits: tuple[int, int] | None = None
        """The clock that is waited for, and since when in ns."""
        self._clocks: dict[int, int] = {}
        """What others have said of theirs."""
        self._has_asked = False

    def clock(self) -> None:
        """End this worker's clock, whose updates are all in its caches."""
        self._clock = self.caches.clock()

    def want(self, staleness: int, now_ns: int) -> None:
        """Ask for the updates of other workers, except those of their last `staleness` clocks."""
        self.caches.want(self._clock - staleness)
        self._waits, self._has_asked = (self._clock - staleness, now_ns), False
        self._look()

    @property
    def has_come(self) -> bool:
        """Whether the updates that `want` last asked for have arrived."""
        return self._waits is None

    def crossed(self, crossing: Crossing, now_ns: int) -> None:  # noqa: ARG002
        """Handle a transfer that has ended; an error with a worker that has left counts only if its updates
        are waited for."""
        peer = crossing.key[1]
        if crossing.error is None:
            self.caches.crossed(crossing)
            self._look()
        elif isinstance(crossing.error, TrainingError):
            self.fail(crossing.error)
        elif peer not in self._left or self._waits is not None:
            self.fail(self._blamed(peer, str(crossing.error)))

    def check(self, now_ns: int) -> None:
        """End the job where other workers have not reached the awaited clock in time."""
        if self._waits is None or self.error is not None:
            return
        clock, since_ns = self._waits
        waited_ns, limit_ns = now_ns - since_ns, self.job.deadline_seconds * NANOSECONDS
        if waited_ns > limit_ns / 2 and not self._has_asked:
            self._has_asked = True
            self._say(clock=self._clock, asks=True)
        if waited_ns > limit_ns:
            behind = [
                node
                for node in range(self.job.world)
                if node not in {self.number} | self._left and self._clocks.get(node, -1) < clock
            ]
            names = ", ".join(map(self.job.node_name, behind[:MOST_LISTED])) or "updates"
            problem = f"has not come to clock {clock} within {self.job.deadline_seconds:g} s"
            self.fail(NodeLateError(problem, where=names))

    def leave(self) -> None:
        """Push nothing more; the node answers others until all have left."""
        self.caches.leave()
        self._clock = OVER
        super().leave()

    def take_posts(self) -> list[Post]:
        """Take the posts (transfers to start) for the carrier; none before all nodes have met."""
        return self.caches.take_posts() if self.has_met_all else []

    @property
    def is_idle(self) -> bool:
        """Whether no updates are awaited at this node."""
        return self._waits is None

    def _hear(self, peer: int, said: Mapping[str, Any], now_ns: int) -> None:  # noqa: ARG002
        self._clocks[peer] = int(said["clock"])
        if said["asks"]:
            self._say(clock=self._clock, asks=False)

    def _look(self) -> None:
        if self._waits is not None and self.caches.has(self._waits[0]):
            self._waits, self._has_asked = None, False


def check_staleness(staleness: object) -> None:
    """Raises UserInputError for a staleness that is no whole number of clocks."""
    if isinstance(staleness, bool) or not isinstance(staleness, int | np.integer) or staleness < 0:
        raise UserInputError(f"{staleness!r:.40}", where="staleness", expected="0 or more clocks")


class SharedModel(Driver[StaleNode]):
    """One worker's copy of the shared model, to be used by one thread.

    Args:
        values: the parameters at the start, one numpy vector of float32 or float64, equal at all workers.
        rank: this worker's; None: as the environment variable RANK says.
        world: number of workers; None: as WORLD_SIZE says.
        rendezvous: as `Group` takes it.
        topology: `tree` or `star`, whose roots are the workers, each for its share of the elements.
        transport: `mlt`, `ltp` or `tcp`.
        config: the agent's configuration; None: one for loopback.
        piece_bytes: size of the pieces into which each root's share is cut.
        deadline_seconds: how long a pull may take.
        timeout_seconds: how long to wait for all workers.

    Raises UserInputError, MachineError, and TrainingError where the workers do not come or do not agree.
    Every method raises the TrainingError that names the worker with which the job has ended.
    """

    def __init__(
        self,
        values: Elements,
        rank: int | None = None,
        world: int | None = None,
        rendezvous: str | Callable[[str], list[str]] = "env://",
        *,
        topology: str = "tree",
        topology_settings: Mapping[str, Any] | None = None,
        transport: str = "mlt",
        config: AgentConfig | None = None,
        piece_bytes: int = PIECE_BYTES,
        deadline_seconds: float = DEADLINE_SECONDS,
        timeout_seconds: float = MEETING_SECONDS,
    ) -> None:
        values = np.asarray(values)
        if values.ndim != 1 or values.dtype.name not in ELEMENT_BYTES:
            problem = f"{values.ndim} dimensions of {values.dtype.name}"
            raise UserInputError(problem, where="values", expected=f"one, of {' or '.join(ELEMENT_BYTES)}")
        options: dict[str, Any] = {
            "piece_bytes": piece_bytes,
            "element_type": values.dtype.name,
            "topology": topology,
            "topology_settings": topology_settings,
            "transport": transport,
            "deadline_seconds": deadline_seconds,
        }
        if world is not None:  # before anybody is waited for
            shape_of(make_job([("values", len(values))], world=world, **options))
        self._group = Group(rank, world, rendezvous, config=config, timeout_seconds=timeout_seconds)
        try:
            job = make_job([("values", len(values))], world=self._group.world, **options)
            node = StaleNode(job, self._group.rank, values)
            super().__init__(node, self._group.agent, self._group.names, timeout_seconds=timeout_seconds)
        except BaseException:
            self._group.close()
            raise
        self._values = values.copy()
        self._has_warned, self._clock = False, 0

    def push(self, update: Elements) -> None:
        """Add an update of the present clock to the parameters."""
        if np.iscomplexobj(update):
            raise UserInputError("is complex", where="update", expected=self._values.dtype.name)
        own = np.array(update, self._values.dtype)  # the caller's is the caller's again
        if own.shape != self._values.shape:
            expected = f"{self._values.shape}"
            raise UserInputError(f"has the shape {own.shape}", where="update", expected=expected)
        if not self._has_warned and not np.isfinite(own).all():
            self._has_warned = True
            name = self.job.node_name(self.node.number)
            _log.warning("%s: an update with NaN or infinity is passed on", name)
        self.call(lambda _: self.node.caches.push(own))

    def clock(self) -> None:
        """End the present clock, whose updates are all pushed."""
        self._clock += 1
        if self._clock >= OVER:
            raise UserInputError(f"{self._clock}", where="clock", expected=f"below {OVER}")
        self.call(lambda _: self.node.clock())

    def pull(self, staleness: int = 0) -> Elements:
        """The parameters with all own updates and those of other workers, except for their last `staleness`
        clocks.

        Args:
            staleness: how many clocks of others may be missing, of as many as this worker has counted.

        Returns a new vector. Raises UserInputError.
        """
        check_staleness(staleness)
        self.call(lambda now_ns: self.node.want(int(staleness), now_ns))
        self._settle()
        self.wait_until(lambda: self.node.has_come)
        with self._changed:
            self.node.caches.read(self._values)
        return self._values.copy()

    def flush(self) -> Elements:
        """The parameters without staleness: workers at the same clock all get the same, up to rounding."""
        return self.pull(0)

    def close(self, reason: str = "", patience_seconds: float | None = None) -> None:
        """Push nothing more, and answer others until all of them close, too; `flush` first.

        With a reason, that of an error here, it ends the job for all at once.
        """
        try:
            with suppress(TrainingError):  # which has ended the job
                if not reason:
                    self._settle()
            super().close(reason, self.job.deadline_seconds if patience_seconds is None else patience_seconds)
        finally:
            self._group.close()

    def _settle(self) -> None:
        """Until all that was asked for so far has been heard."""
        done = list[bool]()
        self.call(lambda _: done.append(True))
        self.wait_until(lambda: bool(done))

    def __enter__(self) -> "SharedModel":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close("" if error is None else ending_of(error))
