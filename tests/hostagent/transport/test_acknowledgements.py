"""Of acknowledgements read together every round trip counts, and of each path the newest word."""

from typing import cast

from mltswitch.hostagent.transport.acknowledgements import Acknowledgements
from mltswitch.hostagent.transport.interfaces import RateController, Sprayer

LONGEST_NS = 1_000_000


class Heard:
    """Stands in for a rate controller and for a sprayer, by which of their arguments come."""

    def __init__(self) -> None:
        self.round_trips_ns: list[int] = []
        self.words: list[tuple[int, ...]] = []

    def acknowledged(self, *word: int) -> None:
        if len(word) == 2:
            self.round_trips_ns.append(word[0])
        else:
            self.words.append(word)


def together(heard: Heard) -> tuple[Acknowledgements, Sprayer]:
    return Acknowledgements(cast("RateController", heard), LONGEST_NS), cast("Sprayer", heard)


def test_the_newest_of_each_path_is_told_once_whatever_came_last() -> None:
    heard = Heard()
    acknowledgements, sprayer = together(heard)
    for path, arrived_ns, answer in (
        (1, 1_500, (1_000, 100, 7, 1)),
        (0, 2_600, (2_000, 200, 20, 2)),
        (1, 3_700, (3_000, 300, 30, 3)),
        (0, 2_900, (1_500, 100, 15, 0)),  # overtaken
        (1, 3_800, (3_000, 400, 31, 3)),  # the same packets' second half
    ):
        acknowledgements.add(path, arrived_ns, answer, 9_000)
    assert heard.round_trips_ns == [400, 400, 400, 1_300, 400]
    assert heard.words == []
    acknowledgements.tell(sprayer, 9_000)
    assert heard.words == [(1, 3_000, 31, 3, 400, 9_000), (0, 2_000, 20, 2, 400, 9_000)]
    acknowledgements.tell(sprayer, 9_001)
    assert len(heard.words) == 2


def test_impossible_round_trips_do_not_reach_the_rate() -> None:
    heard = Heard()
    acknowledgements, _ = together(heard)
    for arrived_ns, held_ns in ((5_000, 0), (5_000, 1), (5_001 + LONGEST_NS, 0), (5_000 + LONGEST_NS, 0)):
        acknowledgements.add(0, arrived_ns, (5_000, held_ns, 1, 0), 6_000_000)
    assert heard.round_trips_ns == [LONGEST_NS]


def test_nothing_waits_for_a_sprayer_that_comes_later() -> None:
    heard = Heard()
    acknowledgements, sprayer = together(heard)
    acknowledgements.add(0, 2_000, (1_000, 0, 1, 0), 3_000)
    acknowledgements.tell(None, 3_000)
    acknowledgements.tell(sprayer, 4_000)
    assert heard.words == []
