"""Any sequence of sending, waiting, true and false acknowledgements: books balance, nothing sticks."""

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mltswitch.hostagent.spraying.settings import MILLISECOND, SECOND, Policy, SprayingSettings
from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.spraying.standing import State

PATHS = st.integers(0, 4)
WORD = st.integers(0, 2**32 - 1)


class AnyAcknowledgements(RuleBasedStateMachine):
    """Path 4 may not exist."""

    @initialize(paths=st.integers(1, 5), policy=st.sampled_from(Policy), seed=st.integers(0, 99))
    def begin(self, paths: int, policy: Policy, seed: int) -> None:
        self.paths = paths
        self.sprayer = PathSprayer(paths, SprayingSettings(policy=policy), seed=seed)
        self.now_ns = 0
        self.sent_bytes = 0
        self.history: list[list[tuple[int, int]]] = [[(-1, 0)] for _ in range(paths)]
        """Of each path: (time, packets until then)."""

    def _note(self, path: int, packets: int) -> None:
        before = self.history[path][-1][1]
        self.history[path].append((self.now_ns, before + packets))

    @rule(bursts=st.integers(0, 200), packets=st.integers(1, 45))
    def send(self, bursts: int, packets: int) -> None:
        paths = self.sprayer.choose(bursts, self.now_ns)
        states = [entry.state for entry in self.sprayer.statistics()]
        assert paths.shape == (bursts,)
        assert all(states[path] is not State.LEFT for path in set(paths.tolist()))
        count = np.full(bursts, packets)
        self.sprayer.sent(paths, count, count * 1500, self.now_ns)
        self.sent_bytes += bursts * packets * 1500
        for path, number in enumerate(np.bincount(paths, minlength=self.paths).tolist()):
            if number:
                self._note(path, number * packets)

    @rule(step_ns=st.sampled_from([0, 1, 1000, MILLISECOND, 12 * MILLISECOND, 60 * MILLISECOND, SECOND]))
    def wait(self, step_ns: int) -> None:
        self.now_ns += step_ns

    @rule()
    def probe(self) -> None:
        for path in self.sprayer.probes_due(self.now_ns):
            self._note(path, 1)
            self.sent_bytes += 40
        assert self.sprayer.probes_due(self.now_ns) == (), "each is named once"
        timer_ns = self.sprayer.next_timer_ns()
        assert timer_ns is None or timer_ns > self.now_ns

    @rule(data=st.data(), share=st.floats(0, 1), marked=st.floats(0, 1))
    def answer(self, data: st.DataObject, share: float, marked: float) -> None:
        """What a receiver may say: of any call, with losses."""
        path = data.draw(st.integers(0, self.paths - 1))
        index = data.draw(st.integers(0, len(self.history[path]) - 1))
        echoed_ns, packets = self.history[path][index]
        received = round(share * packets)
        delay_ns = max(self.now_ns - echoed_ns, 1)
        self.sprayer.acknowledged(path, echoed_ns, received, round(marked * received), delay_ns, self.now_ns)

    @rule(path=PATHS, ago_ns=st.integers(-SECOND, SECOND), received=WORD, marked=WORD, delay_ns=st.integers())
    def lie(self, path: int, ago_ns: int, received: int, marked: int, delay_ns: int) -> None:
        """What a receiver may not say."""
        self.sprayer.acknowledged(path, self.now_ns - ago_ns, received, marked, delay_ns, self.now_ns)

    @invariant()
    def the_books_balance(self) -> None:
        if not hasattr(self, "sprayer"):
            return
        entries = self.sprayer.statistics()
        assert sum(entry.sent_bytes for entry in entries) == self.sent_bytes
        assert 0 <= self.sprayer.in_flight_bytes <= self.sent_bytes
        assert any(entry.state is not State.LEFT for entry in entries)
        for entry, history in zip(entries, self.history, strict=True):
            assert entry.sent_packets == history[-1][1]
            assert 0 <= entry.lost_packets <= entry.sent_packets
            assert 0 <= entry.acknowledged_packets <= entry.sent_packets
            assert entry.times_left - entry.times_returned == (entry.state is State.LEFT)

    def teardown(self) -> None:
        """Without any further answer nothing stays under way but the last probes."""
        if not hasattr(self, "sprayer"):
            return
        for _ in range(400):
            timer_ns = self.sprayer.next_timer_ns()
            if timer_ns is None:
                break
            self.now_ns = max(self.now_ns, timer_ns)
            self.sprayer.probes_due(self.now_ns)
            if self.sprayer.in_flight_bytes <= self.paths * 40 and self._is_late():
                break
        assert self.sprayer.in_flight_bytes <= self.paths * 2 * 40

    def _is_late(self) -> bool:
        return all(self.now_ns - history[-1][0] > SECOND for history in self.history)


TestAnyAcknowledgements: Any = AnyAcknowledgements.TestCase
TestAnyAcknowledgements.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
