"""The lines that take an Enterprise SONiC switch back to what it ran before a push.

A push binds objects of ours in place of others, which stay, so the way back binds the others again, in the
phases of diff.py. Objects of ours that are gone are made anew first, those that were changed get their lines
back, and those that the push made go last. A port takes its former scheduler policy after the packets have
moved, unless that policy can serve them before; no third policy stands between.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, RunningState
from mltswitch.targets.dell_sonic.diff import (
    ENTRY_WORDS,
    Line,
    Phase,
    binding_lines,
    change_of,
    curve_lines,
    map_lines,
    policy_lines,
    removals,
    route_lines,
)
from mltswitch.targets.dell_sonic.names import PREFIX, UNTRUSTED
from mltswitch.targets.dell_sonic.read import read_configuration
from mltswitch.targets.dell_sonic.scheduling import Moment, Traffic, passage, traffic_between
from mltswitch.targets.dell_sonic.sections import attributes_text, number_list
from mltswitch.targets.dell_sonic.settings import (
    DSCP_MAP_KIND,
    QUEUE_MAP_KIND,
    Attributes,
    Configuration,
)
from mltswitch.targets.routes import OwnPrefixes
from mltswitch.targets.state import SwitchState


def restore_to(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """What undoes a push of the wanted state; raises DeviceError for what no command brings back."""
    del capabilities
    now, then = read_configuration(running.answers), read_configuration(before)
    ports = {port.name: then.ports[port.name] for port in wanted.ports if port.name in then.ports}
    for name in ports.keys() - now.ports.keys():
        raise DeviceError("the port is gone since the push", where=f"port {name}")
    own = OwnPrefixes(wanted.routes)
    now, then = (
        replace(each, routes=tuple(route for route in each.routes if route.prefix in own))
        for each in (now, then)
    )
    return change_of(_Restoration(now, replace(then, ports=ports)).lines())


def _ours(objects: Mapping[str, object]) -> list[str]:
    return [name for name in objects if name.rpartition(" ")[2].startswith(PREFIX)]


@dataclass(frozen=True, slots=True)
class _Restoration:
    """What runs, and what ran before with the ports that the push was for."""

    now: Configuration
    then: Configuration

    def lines(self) -> Iterator[Line]:
        yield from self._objects()
        traffic = traffic_between(self.now, self.then)
        sheltered = any(
            self._queues(self.now, port) != self._queues(self.then, port) for port in self.then.ports
        )
        for port in self.then.ports:
            yield from self._port(port, traffic, sheltered=sheltered)
        yield from route_lines(self.now.routes, self.then.routes)
        after = {**self.now.ports, **self.then.ports}.values()
        used = {
            name
            for port in after
            for name in (port.scheduler, port.policy, *port.wred.values(), *port.maps.values())
        }
        yield from removals(self.now, self.then, used)

    @staticmethod
    def _queues(configuration: Configuration, port: str) -> Mapping[int, int] | None:
        """Queue of each traffic class by the port's map; None where it has none."""
        bound = configuration.ports[port].maps.get(QUEUE_MAP_KIND)
        return None if bound is None else configuration.map_entries(QUEUE_MAP_KIND, bound)

    def _objects(self) -> Iterator[Line]:
        for name in _ours(self.then.wred):
            yield from _wred_lines(name, self.now.wred.get(name), self.then.wred[name])
        for name in _ours(self.then.schedulers):
            path = (f"qos scheduler-policy {name}",)
            running, former = self.now.schedulers.get(name), self.then.schedulers[name]
            phase = Phase.CREATE if running is None else Phase.SETTLE
            yield from policy_lines(phase, path, running.queues if running else {}, former.queues)
            if former.port != (running.port if running else None):
                yield from (
                    Line(phase, (*path, "port"), words) for words in attributes_text(former.port or {})
                )
        for kind, (word, _) in ENTRY_WORDS.items():
            ours = {name: self.then.maps[kind][name] for name in _ours(self.then.maps.get(kind, {}))}
            yield from map_lines(self.now, replace(self.then, maps={kind: ours}), kind)
            for name, entries in ours.items():
                if surplus := self.now.map_entries(kind, name).keys() - entries.keys():
                    path = (f"qos map {kind} {name}",)
                    yield Line(Phase.MAP, path, f"no {word} {number_list(sorted(surplus))}")
        for name in _ours(self.then.flows):
            yield from self._flow_lines(name)
        present = {*self.now.wred, *self.now.schedulers}.union(*self.now.maps.values())
        for name, words in self.then.strange.items():
            if name not in present:
                raise DeviceError(
                    f"the push has removed {name}, and no command is known for its line {words[0]!r}",
                    hint="enter it by hand from the backup",
                )

    def _flow_lines(self, name: str) -> Iterator[Line]:
        """Lines that are set again replace others; one that was added cannot be taken out alone."""
        running, former = self.now.flows.get(name), self.then.flows[name]
        missing = [line for line in former if line not in (running or ())]
        phase = Phase.CREATE if running is None else Phase.MAP
        yield from (Line(phase, *line) for line in missing)
        replaced = {(path, words.rpartition(" ")[0]) for path, words in missing}
        for path, words in running or ():
            if (path, words) not in former and (path, words.rpartition(" ")[0]) not in replaced:
                raise DeviceError(
                    f"no command is known that takes {words!r} out of {path[-1]!r}",
                    where=name,
                    hint=f"take {name} off its ports, remove it, and enter it again from the backup",
                )

    def _port(self, name: str, traffic: Traffic, *, sheltered: bool) -> Iterator[Line]:
        path = (f"interface {name}",)
        now, then = self.now.ports[name], self.then.ports[name]
        for queue in sorted({*now.wred, *then.wred}):
            yield from binding_lines(self.now, self.then, name, queue, sheltered=sheltered)
        for kind in (QUEUE_MAP_KIND, DSCP_MAP_KIND):
            bound = then.maps.get(kind)
            if bound != now.maps.get(kind):
                phase = Phase.DISTRUST if (bound or UNTRUSTED).startswith(UNTRUSTED) else Phase.MAP
                yield Line(phase, path, f"qos-map {kind} {bound}" if bound else f"no qos-map {kind}")
        if now.policy != then.policy:
            phase = Phase.MAP if then.policy else Phase.DISTRUST
            if now.policy:
                yield Line(phase, path, "no service-policy type qos in")
            if then.policy:
                yield Line(phase, path, f"service-policy type qos in {then.policy}")
        if now.scheduler != then.scheduler:
            new = self.then.schedulers.get(then.scheduler)
            old = self.now.schedulers.get(now.scheduler)
            is_early = new is not None and passage(old, new, traffic)[0] is Moment.BEFORE
            words = f"scheduler-policy {then.scheduler}" if then.scheduler else "no scheduler-policy"
            yield Line(Phase.SCHEDULE if is_early else Phase.SETTLE, path, words)


def _wred_lines(name: str, running: Attributes | None, former: Attributes) -> Iterator[Line]:
    path = (f"qos wred-policy {name}",)
    if running is None:
        yield from (Line(Phase.CREATE, path, words) for words in attributes_text(former))
        return
    steps = list(curve_lines(running, former))
    yield from (Line(phase, path, words) for phase, words in steps)
    for word in {**running, **former}:
        if running.get(word) != former.get(word) and not (steps and word == "green"):
            words = f"{word} {former[word]}" if word in former else f"no {word}"
            yield Line(Phase.TIGHTEN, path, words)
