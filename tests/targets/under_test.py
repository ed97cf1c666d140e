"""A switch OS as the laws see it: a switch that answers and takes lines, and what has become of it.

`tests/targets/<os>/under_test.py` says what is an OS's own. A law asks nothing else of an OS, so one that
is described there is under every law; what a description leaves out says which laws do not concern the OS.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from hypothesis import strategies as st

from mltswitch.capabilities import Capabilities
from mltswitch.plan import Plan
from mltswitch.targets import Change, RunningState, Step, SwitchState, Target
from switchsim import KINDS
from tests.targets.strategies import plans, switch_names

Enter = Callable[[Step], None]
"""Sends one step in an open session; fails where the switch refuses it."""
Lot = tuple[float, ...]
"""What becomes of a packet, each value the better the greater: what is dropped later, or served sooner."""
NEVER = 10**9
"""From which queue length packets are dropped early where none are."""


class SwitchUnderTest:
    """A switch as delivered. This class serves the emulated ones with a command line."""

    target: ClassVar[Target]
    ports: ClassVar[int] = 8
    """More than any switch of a drawn plan has."""
    shows: ClassVar[tuple[str, ...]] = ("enable",)
    """Lines that lead a new session to the mode in which questions are asked."""
    configures: ClassVar[tuple[str, ...]] = ("configure terminal",)
    """Lines that lead from there to the mode in which a change begins."""
    accepted: ClassVar[re.Pattern[str]] = re.compile("")
    """What an accepted line prints."""
    settings_of_others: ClassVar[tuple[str, ...]] = ()
    """Lines of somebody else, of other ports, prefixes or names than any plan's."""
    is_atomic: ClassVar[bool] = False
    """Whether steps of ours take effect together, so that nothing between two plans can be seen."""
    restores_after_others: ClassVar[bool] = True
    """Whether a way back restores all that its plan owns, also where only a later push changed it."""
    spares_from_anything: ClassVar[bool] = False
    """Whether the order of our lines spares packets also where anybody's settings are in the plan's place."""
    spared_on_the_way_back: ClassVar[int | None] = None
    """How many values of a packet's lot the order of a way back spares; None: all."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.device = self.delivered()

    def delivered(self) -> Any:
        """A switch of this hardware as its vendor delivers it."""
        kind = KINDS[self.target.platform]
        return kind(ports=self.ports, **kind.boxes.get(self.capabilities.hardware, {}))

    # --- what an operator does ---

    def ask(self, query: str) -> str:
        """What the switch answers."""
        session = self.device.open_session("admin")
        for line in (*self.shows, query):
            text: str = session.enter(line).text
        return text

    def entering(self) -> Enter:
        """A new session in which a change begins."""
        session = self.device.open_session("admin")
        for line in (*self.shows, *self.configures):
            assert session.enter(line).text == ""

        def enter(step: Step) -> None:
            answer = session.enter(step.command).text
            assert self.accepted.fullmatch(answer), f"{step.command}: {answer}"

        return enter

    def send(self, steps: Iterable[Step]) -> None:
        """Enter steps in a new session."""
        enter = self.entering()
        for step in steps:
            enter(step)

    def configure(self, *lines: str) -> None:
        """Enter lines by hand."""
        self.send(map(Step, lines))

    def paste(self, files: Mapping[str, str], name: str) -> None:
        """Enter one rendered file by hand."""
        self.configure(*files[name].splitlines())

    # --- what mltswitch does ---

    def state_of(self, data: st.DataObject, *, has_lossless: bool = True) -> SwitchState:
        """A random plan for a random switch of this hardware."""
        plan: Plan = data.draw(plans(self.capabilities, has_lossless=has_lossless))
        return self.target.fit_to_hardware(plan, data.draw(switch_names(plan))).state

    def read(self, wanted: SwitchState) -> RunningState:
        """What runs, as far as a wanted state asks for it."""
        answers = {query: self.ask(query) for query in self.target.queries(wanted)}
        return self.target.read(answers, wanted, self.capabilities)

    def change(self, wanted: SwitchState) -> Change:
        """What a push would send."""
        return self.target.diff(self.read(wanted), wanted, self.capabilities)

    def way_back(self, before: RunningState, wanted: SwitchState) -> Change:
        """What leads from here to what ran before a push."""
        return self.target.restore(before.answers, self.read(wanted), wanted, self.capabilities)

    def apply(self, change: Change) -> None:
        """Send a change as a push does, and save."""
        self.send(change.steps)
        self.send(change.save)

    def push(self, wanted: SwitchState) -> None:
        """Make the switch run a plan."""
        self.apply(self.change(wanted))

    # --- what has become of the switch ---

    def configuration(self) -> Any:
        """All that runs, in a form without an order of its own."""
        raise NotImplementedError

    def marker(self) -> object:
        """The same object as long as nothing that runs has changed."""
        return self.device.configuration

    def is_saved(self) -> bool:
        """Whether what runs survives a reboot, and nothing else waits."""
        raise NotImplementedError

    def objects(self) -> object:
        """What ports refer to by a name; whatever it was, an old plan leaves none of it."""

    def others(self, wanted: SwitchState) -> object:
        """All that runs and that a push of a plan may not touch."""
        raise NotImplementedError

    def leaving(self, port: str) -> Iterable[list[int]]:
        """For each IP version what a port makes of the code points 0 to 63 of packets that arrive there."""
        del port
        return ()

    def lots(self, names: list[str], queues: frozenset[int]) -> list[Lot]:
        """The lot of a packet on every way in and out for every code point; by queues of no plan none is
        dropped."""
        raise NotImplementedError

    def levels(self, names: list[str]) -> list[list[int]]:
        """For every way in and out, port by port, the level at which each code point is served."""
        raise NotImplementedError

    # --- what somebody else does ---

    def start(self, data: st.DataObject) -> None:
        """One of the ways in which a switch is before anything of a plan."""

    def disturb(self, data: st.DataObject, wanted: SwitchState) -> None:
        """Configure anything in the place of what a plan needs."""
        raise NotImplementedError

    def disorder(self, data: st.DataObject, wanted: SwitchState) -> None:
        """Lead code points to any queues, and serve these in any order."""
        raise NotImplementedError

    def steps_by_hand(self, change: Change) -> tuple[Step, ...]:
        """The steps of a change, each of which takes effect at once."""
        return change.steps

    def undo(self, change: Change) -> None:
        """Enter what a change itself says leads back."""
        raise NotImplementedError
