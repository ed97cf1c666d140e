"""Linux as the laws see it: what tc and ip hold, as lines. A kernel is what test_kernel.py asks."""

import re
from collections.abc import Mapping
from typing import Any

from mltswitch.targets import RunningState, Step, SwitchState
from mltswitch.targets.linux import TARGET
from mltswitch.targets.linux.files import state_said_by
from tests.targets.under_test import Enter, SwitchUnderTest


class LinuxUnderTest(SwitchUnderTest):
    """A host that understands tc and ip just enough to hold our batches.

    It answers no query: its state is what its lines say. Lines with mistakes therefore have no way back here.
    """

    target = TARGET
    is_atomic = False

    def delivered(self) -> Any:
        self.queues: dict[str, list[str]] = {}
        self.marks: dict[str, list[str]] = {}
        self.routes: dict[str, str] = {}
        return self

    def entering(self) -> Enter:
        takes = {"tc -batch -": self._tc, "ip -batch -": self._ip}

        def enter(step: Step) -> None:
            for line in step.stdin.split("\n"):
                if line and not line.startswith("#"):
                    takes[step.command](line)
            assert step.stdin or step.command == "sysctl -q -w net.ipv6.conf.all.forwarding=1"

        return enter

    def paste(self, files: Mapping[str, str], name: str) -> None:
        program = {"qdiscs.tc": "tc", "routes.ip": "ip"}[name]
        self.send([Step(f"{program} -batch -", files[name])])

    def _tc(self, line: str) -> None:
        port = line.split(" ")[3]
        if line.endswith((" clsact", " ingress")):
            self.marks[port] = []
        elif f" dev {port} ingress " in line:
            self.marks[port].append(line)
        else:
            if " root handle ffef: " in line:
                self.queues[port] = []
            lines = self.queues[port]
            place = re.match(r"qdisc replace dev \S+ (parent \S+|root) handle \S+ \S+ ", line)
            known = (n for n, old in enumerate(lines) if place and old.startswith(place[0]))
            at = next(known, len(lines))
            lines[at : at + 1] = [line]

    def _ip(self, line: str) -> None:
        _, action, *words = line.split(" ")
        # The kernel knows a route by its prefix, whatever it does.
        kind = ["blackhole"] if words[0] == "blackhole" else []
        prefix, *rest = words[len(kind) :]
        assert action == "replace" or (prefix in self.routes) is (action == "del"), line
        if action == "del":
            del self.routes[prefix]
        else:
            self.routes[prefix] = " ".join([*kind, "{}", *rest])

    def read(self, wanted: SwitchState) -> RunningState:
        """The state; ports and routes that are wanted in their order, the others after them."""
        routes = [str(route.prefix) for route in wanted.routes]
        if (segments := wanted.segment_routing) is not None:
            routes += [*(str(route.prefix) for route in segments.routes), f"{segments.segment}/128"]
        order = dict.fromkeys([*(prefix for prefix in routes if prefix in self.routes), *self.routes])
        by_family = sorted(order, key=lambda prefix: ":" in prefix)
        lines = [f"route replace {self.routes[prefix].format(prefix)}" for prefix in by_family]
        names = [port.name for port in wanted.ports if port.name in self.queues]
        files = {
            "qdiscs.tc": "\n".join(line for name in names for line in self._lines_of(name)),
            "routes.ip": "\n".join(lines),
        }
        return RunningState(state_said_by(files), {})

    def _lines_of(self, name: str) -> list[str]:
        first = f"qdisc replace dev {name} clsact", f"filter del dev {name} ingress"
        return [*first, *self.marks[name], *self.queues[name]]

    def configuration(self) -> object:
        return {name: self._lines_of(name) for name in self.queues}, dict(self.routes)

    def is_saved(self) -> bool:
        """Saving is what test_save.py is about."""
        return True

    def others(self, wanted: SwitchState) -> object:
        names = {port.name for port in wanted.ports}
        return {name: lines for name, lines in self.queues.items() if name not in names}
