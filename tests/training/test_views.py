"""All that are left agree on who is, in whatever order words come; no two parts go on."""

import itertools
from collections import defaultdict, deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.training.job import Job, make_job
from mltswitch.training.views import State, View, Views, mask_of

SECOND = 1_000_000_000


def job_of(ranks: int, pieces: int = 3) -> Job:
    return make_job([(f"layer-{number}", 5_000) for number in range(pieces)], world=ranks, piece_bytes=20_000)


class Nodes:
    """Views of all nodes, and the words between them, which come in the order of each sender."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.views = [Views(job, number) for number in range(job.nodes)]
        self.words: defaultdict[tuple[int, int], deque[dict[str, Any]]] = defaultdict(deque)
        self.dead: set[int] = set()
        self.agreed: defaultdict[int, list[View]] = defaultdict(list)

    def says(self, sender: int, words: list[dict[str, Any]]) -> None:
        for other in range(self.job.nodes):
            if other != sender:
                self.words[sender, other].extend(words)

    def lose(self, node: int, lost: frozenset[int], now_ns: int = 0) -> None:
        views = self.views[node]
        self.heed(node, views.lose(lost, now_ns))

    def heed(self, node: int, is_news: bool) -> None:
        views = self.views[node]
        if not is_news:
            return
        if views.state is not State.OUTSIDE:
            self.says(node, [{"lost": mask_of(views.gone), "era": views.era}])
        if views.problem:
            self.dead.add(node)

    def stop(self, node: int, now_ns: int = 0) -> None:
        if self.views[node].state is State.STOPPING:
            self.says(
                node, self.views[node].stopped([node] * len(self.job.pieces) + [9 * node], node, now_ns)
            )
            self.agree(node, now_ns)

    def hear(self, sender: int, node: int, now_ns: int = 0) -> None:
        word = self.words[sender, node].popleft()
        enters = word["era"][1][-1:] == (sender,)
        if node in self.dead or (sender in self.views[node].gone and not enters):
            return
        self.heed(node, self.views[node].heard(sender, word, now_ns))
        if node not in self.dead:
            self.agree(node, now_ns)

    def agree(self, node: int, now_ns: int) -> None:
        view = self.views[node].installed(now_ns)
        if view is not None:
            self.agreed[node].append(view)

    def restart(self, node: int) -> None:
        """All hear that its former connections are over before it has new ones."""
        for pair in [pair for pair in self.words if node in pair]:
            del self.words[pair]
        for other in {*range(self.job.nodes)} - self.dead:
            self.lose(other, frozenset({node}))
        self.views[node] = Views(self.job, node, frozenset(self.dead - {node}))
        self.dead -= {node}

    def take_in(self, node: int, newcomer: int) -> None:
        views, absent = self.views[node], self.views[newcomer].gone
        if newcomer in views.gone and self.views[newcomer].state is State.OUTSIDE:
            self.heed(node, views.take_in(newcomer, absent, 0))

    def settle(self, now_ns: int = 0) -> None:
        is_over = False
        while not is_over:  # a node stops also where no word is left
            for (sender, node), words in [*self.words.items()]:
                if words:
                    self.hear(sender, node, now_ns)
            for node in {*range(self.job.nodes)} - self.dead:
                self.stop(node, now_ns)
            is_over = not any(self.words.values())


def happen(nodes: Nodes, what: str, node: int, data: st.DataObject) -> None:
    ranks = nodes.job.nodes
    match what:
        case "die":
            nodes.dead.add(node)
        case "lose":
            nodes.lose(node, frozenset({data.draw(st.integers(0, ranks - 1))}))
        case "restart" if nodes.dead:
            nodes.restart(data.draw(st.sampled_from(sorted(nodes.dead))))
        case "take in":
            for newcomer in {*range(ranks)} - nodes.dead:
                nodes.take_in(node, newcomer)
        case "settle":
            nodes.settle()
        case "stop":
            nodes.stop(node)
        case "hear":
            waiting = [pair for pair, words in nodes.words.items() if words]
            if waiting:
                nodes.hear(*data.draw(st.sampled_from(sorted(waiting))))


@settings(max_examples=300)
@given(data=st.data())
def test_views_are_alike_and_follow_each_other(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(2, 6))
    nodes = Nodes(job_of(ranks))
    kinds = ["lose", "die", "stop", "hear", "hear", "hear", "settle", "restart", "take in", "take in"]
    for _ in range(data.draw(st.integers(1, 40))):
        alive = sorted({*range(ranks)} - nodes.dead)
        if not alive:
            break
        happen(nodes, data.draw(st.sampled_from(kinds)), data.draw(st.sampled_from(alive)), data)
    nodes.settle()
    for node in sorted({*range(ranks)} - nodes.dead):  # who hears of the dead in the end
        nodes.lose(node, frozenset(nodes.dead))
    nodes.settle()
    by_epoch: dict[int, View] = {}
    for node, views in nodes.agreed.items():
        for view in views:
            assert by_epoch.setdefault(view.epoch, view) == view
            assert node not in view.gone
        assert all(one.epoch < other.epoch for one, other in itertools.pairwise(views))
    chain = [by_epoch[epoch] for epoch in sorted(by_epoch)]
    for one, other in itertools.pairwise(chain):
        back = one.gone - other.gone
        assert len(back) <= 1 or other.epoch > one.epoch + 2, "one is taken in at a time"
    outside = {node for node in range(ranks) if nodes.views[node].state is State.OUTSIDE}
    left = {*range(ranks)} - nodes.dead - outside
    assert len({nodes.views[node].agreed for node in left}) <= 1
    for node in left:
        assert nodes.views[node].state is State.TOGETHER
        assert nodes.views[node].left >= left
        assert nodes.views[node].entering == nodes.views[min(left)].entering


def test_it_goes_on_from_where_all_say_that_they_are() -> None:
    nodes = Nodes(job_of(4, pieces=1_600))  # more than one word says
    nodes.lose(0, frozenset({3}))
    nodes.settle()
    [view] = nodes.agreed[0]
    assert view.gone == {3}
    assert view.results == {node: [node] * len(nodes.job.pieces) + [9 * node] for node in range(3)}
    assert not view.is_star


@pytest.mark.parametrize(("second_at", "is_star"), [(9, True), (11, False)])
def test_faults_that_follow_each_other_end_trees(second_at: int, is_star: bool) -> None:
    nodes = Nodes(job_of(5))
    nodes.lose(0, frozenset({4}), 100 * SECOND)
    nodes.settle(100 * SECOND)
    nodes.lose(0, frozenset({3}), (100 + second_at) * SECOND)
    nodes.settle((100 + second_at) * SECOND)
    assert [[view.is_star for view in nodes.agreed[node]] for node in range(3)] == [[False, is_star]] * 3


@pytest.mark.parametrize(
    ("ranks", "lost", "problem"),
    [
        (3, {2}, ""),
        (3, {0}, ""),
        (3, {1, 2}, "is left with 1 of 3 nodes, not more than half, without rank 1, rank 2"),
        (4, {2, 3}, ""),  # half with the first
        (4, {0, 1}, "is left with 2 of 4 nodes, not more than half, without rank 0, rank 1"),
        (2, {1}, ""),
        (2, {0}, "is left with 1 of 2 nodes, not more than half, without rank 0"),
    ],
)
def test_only_the_larger_part_goes_on(ranks: int, lost: set[int], problem: str) -> None:
    views = Views(job_of(ranks), min({*range(ranks)} - lost))
    views.lose(frozenset(lost), 0)
    assert views.problem == problem


def test_who_is_taken_for_lost_ends() -> None:
    views = Views(job_of(4), 2)
    assert views.heard(1, {"lost": "4", "era": (0, ())}, 0)
    assert views.problem == "the others have lost it, and go on without it"


def test_servers_alone_do_not_go_on() -> None:
    job = make_job([("a", 10)], world=2, servers=3)
    views = Views(job, 3)
    views.lose(frozenset({0, 1}), 0)
    assert views.problem.startswith("2 nodes are lost")


PIECES = len(job_of(4).pieces)
SAID = {
    "lost": "2",
    "era": (0, ()),
    "begun": 1,
    "version": 0,
    "at": -1,
    "hurried": False,
    "first": 0,
    "least": 3,
    "ballot": 1,
    "more": "01" * (PIECES // 2),
}


@pytest.mark.parametrize(
    "word",
    [
        SAID | {"lost": "10"},
        SAID | {"lost": "-1"},
        SAID | {"lost": "x"},
        {},
        {"lost": "1", "era": (0, ()), "more": "0"},
        SAID | {"era": (1, (4,))},
        SAID | {"era": (1, ())},
        SAID | {"at": -2},
        SAID | {"begun": -1},
        SAID | {"first": 1},
        SAID | {"first": -400},
        SAID | {"more": "0"},
        SAID | {"more": "x" * PIECES},
        SAID | {"least": -1},
        SAID | {"ballot": "y"},
    ],
)
def test_what_no_node_says(word: dict[str, Any]) -> None:
    views = Views(job_of(4), 0)
    with pytest.raises((ValueError, LookupError)):
        views.heard(2, word, 0)
    assert views.heard(2, SAID, 0)
    assert views.gone == {1}


def test_who_has_left_counts_for_nothing() -> None:
    """Of five, two have left when another one dies: the last two go on, and do not wait for those."""
    views = [Views(job_of(5), number) for number in range(5)]
    for number in (0, 1):
        for gone in (3, 4):
            views[number].depart(gone)
        assert views[number].lose(frozenset({2}), 0)
        assert views[number].gone == {2, 3, 4}
        assert not views[number].problem
    views[0].stopped([0] * (len(job_of(5).pieces) + 1), 0, 0)
    assert views[0].missing == [1]


def test_all_say_alike_whether_faults_follow_each_other() -> None:
    """Who has agreed on the first fault before the second one, and who has not, go on alike."""
    nodes = Nodes(job_of(7))
    for node in range(7):
        nodes.lose(node, frozenset({5}), 100 * SECOND)
    for node in {*range(7)} - {5}:
        nodes.says(node, nodes.views[node].stopped([0] * (len(nodes.job.pieces) + 1), 0, 100 * SECOND))
    for sender in (1, 2, 3, 4, 6):
        while nodes.words[sender, 0]:
            nodes.hear(sender, 0, 100 * SECOND)
    assert nodes.views[0].agreed == {5}
    nodes.dead |= {5, 6}
    for (sender, _), words in nodes.words.items():
        if sender == 6:
            words.clear()  # it fell silent before the others heard it
    for node in range(5):
        nodes.lose(node, frozenset({6}), 120 * SECOND)
    nodes.settle(120 * SECOND)
    last = [nodes.agreed[node][-1] for node in range(5)]
    assert all(view == last[0] for view in last)
    assert last[0].gone == {5, 6}
