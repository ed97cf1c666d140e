"""Sends bursts in batches: headers and elements go from where they lie, many packets per system call.

One message of sendmmsg(2) is one burst where the kernel cuts it into datagrams (UDP_SEGMENT, Linux 4.18),
else one packet. All addresses and lengths are written by one compiled pass, or by a fixed number
of numpy calls per batch.
"""

import errno
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent import native
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.departures import Departures
from mltswitch.hostagent.network.outgoing import (
    EXHAUSTED,
    FULL,
    OUR_FAULT,
    Cut,
    Messages,
    Refusal,
    SendCounters,
    Vectors,
    check_bursts,
    check_shapes,
    cut_for_segmentation,
    overhead_bytes,
    picked,
    push_messages,
    rest_of,
    send_by_socket,
)
from mltswitch.hostagent.network.sockets import (
    PathSocket,
    send_space_bytes,
    socket_address,
)
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram

_NO_SEGMENTATION: Final = frozenset({errno.EIO, errno.EINVAL, errno.ENOPROTOOPT, errno.EOPNOTSUPP})
"""The device computes no checksums, the kernel knows no UDP_SEGMENT, or the route forbids it (udp(7))."""
_CHARGE_BYTES: Final = 2048
"""A message is charged to its socket with less than twice its bytes and this."""


class BurstSender:
    """Sends to the paths' destinations; the sockets stay the caller's."""

    def __init__(
        self,
        paths: Mapping[int, PathSocket],
        *,
        segmentation: bool = True,
        departures: Departures | None = None,
    ) -> None:
        """`paths`: path number → socket and destination; several paths may share a socket. `departures`: when
        fq shall send each message; all sockets have been told (`enable_departures`).

        Raises MachineError where the machine is none of ours; ValueError without a path, or with sockets of
        IPv4 and of IPv6.
        """
        libc.require_supported_machine()
        families = {entry.socket.family for entry in paths.values()}
        if len(families) != 1 or min(paths) < 0:
            raise ValueError("a sender has one path or more, from 0 on, of one address family")
        self.counters = SendCounters()
        self._refused: Counter[tuple[int, int]] = Counter()
        self._destinations = dict(paths)
        self._sockets = list({entry.socket.fileno(): entry.socket for entry in paths.values()}.values())
        self._socket_of_path = np.full(max(paths) + 1, -1, np.int64)
        self._segmenting = np.full(max(paths) + 1, segmentation)
        self._is_segmenting_everywhere = segmentation
        for path, entry in paths.items():
            self._socket_of_path[path] = self._sockets.index(entry.socket)
        names = {
            path: socket_address(entry.socket.family, entry.address, entry.port)
            for path, entry in paths.items()
        }
        name_bytes = len(names[min(paths)])
        self._names = np.zeros((max(paths) + 1, name_bytes), np.uint8)
        # Unknown paths have none, and neither have those below zero, which count from the end.
        self._name_of_path = np.zeros(2 * (max(paths) + 1), np.int64)
        for path, name in names.items():
            self._names[path] = np.frombuffer(name, np.uint8)
            self._name_of_path[path] = libc.address_of(self._names[path])
        is_ipv6 = families == {socket.AF_INET6}
        self._level = socket.IPPROTO_IPV6 if is_ipv6 else socket.IPPROTO_IP
        self._kind = libc.IPV6_TCLASS if is_ipv6 else libc.IP_TOS
        self._departures = departures
        self._messages = Messages(self._level, self._kind, name_bytes, with_departures=departures is not None)
        self._is_compiled = departures is None and len(self._sockets) == 1
        """Whether compiled passes know what all messages need."""
        self._plain_vectors = Vectors(2)
        self._tagged_vectors = Vectors(3)
        self._blocked: socket.socket | None = None

    @property
    def blocked_socket(self) -> socket.socket | None:
        """See `Output`."""
        return self._blocked

    def is_segmenting(self, path: int) -> bool:
        """Whether the kernel cuts bursts of this path, as far as is known."""
        return bool(self._segmenting[path])

    def refusals(self) -> tuple[Refusal, ...]:
        """What the kernel would not send since this was asked last."""
        refused, self._refused = self._refused, Counter()
        return tuple(Refusal(path, error, packets) for (path, error), packets in sorted(refused.items()))

    def send(self, bursts: Bursts) -> int:
        """How many leading packets are dealt with; offer the others again when `blocked_socket` says.

        Never waits, and keeps nothing of the bursts. Packets that the kernel cannot send as they are count
        as dealt with: see `refusals`. Raises ValueError for bursts that point outside their memory or name
        an unknown path, OSError for a closed socket.
        """
        self._blocked = None
        if not bursts.packet_count:
            return 0
        check_shapes(bursts)
        taken = 0
        while True:
            # Each time that more is to be sent, one more path has no segmentation any more.
            done, is_more = self._send_once(bursts)
            taken += done
            if not is_more:
                return taken
            bursts = rest_of(bursts, done)

    def send_datagrams(self, datagrams: Sequence[Datagram]) -> int:
        """A few small ones, one by one; how many leading ones are dealt with, as `send` says."""
        self._blocked = None
        for index, datagram in enumerate(datagrams):
            target = self._destinations[datagram.path]
            control = ((self._level, self._kind, datagram.tos.to_bytes(4, "little")),)
            self.counters.calls += 1
            try:
                target.socket.sendmsg(
                    (datagram.payload,), control, libc.MSG_DONTWAIT, (target.address, target.port)
                )
            except OSError as error:
                if error.errno in FULL:
                    self._blocked = None if error.errno in EXHAUSTED else target.socket
                    return index
                self._refuse(datagram.path, error.errno or 0, 1)
                continue
            self.counters.messages += 1
            self.counters.packets += 1
        return len(datagrams)

    def _send_once(self, bursts: Bursts) -> tuple[int, bool]:
        """(leading packets dealt with, whether the rest can be sent at once in another form)."""
        vectors = self._plain_vectors if bursts.tags is None else self._tagged_vectors
        if self._is_compiled and self._is_segmenting_everywhere and native.LIBRARY is not None:
            written = self._messages.write_compiled(native.LIBRARY, bursts, self._name_of_path, vectors)
            if written is not None:
                done, is_more = self._push(self._sockets[0], written, 0, written.count, vectors.pieces)
                return int(written.starts[done]), is_more
        check_bursts(bursts)
        segmenting = None
        if not self._is_segmenting_everywhere:
            self._names_of(bursts.paths)
            segmenting = self._segmenting[bursts.paths]
        cut = cut_for_segmentation(bursts, segmenting)
        vectors.reserve(bursts.packet_count)
        vectors.write_bursts(bursts, 0)
        names = self._names_of(cut.paths)
        if len(self._sockets) > 1:
            return self._send_by_socket(bursts, cut, names, vectors), False
        self._messages.write(cut, names, vectors, self._planned(bursts, cut))
        done, is_more = self._push(self._sockets[0], cut, 0, cut.count, vectors.pieces)
        if self._departures is not None:
            self._departures.left(done)
        return int(cut.starts[done]), is_more

    def _send_again(self, bursts: Bursts, cut: Cut, messages: NDArray[np.int64]) -> None:
        """In the form that is known to be right by now; what finds no room counts as lost."""
        rest = picked(bursts, cut, messages)
        done = self.send(rest)
        if done < rest.packet_count:
            lost = cut_for_segmentation(rest_of(rest, done))
            for path, packets in zip(lost.paths.tolist(), lost.packets.tolist(), strict=True):
                self._refuse(path, errno.ENOBUFS, packets)

    def _planned(self, bursts: Bursts, cut: Cut) -> NDArray[np.int64] | None:
        """When each message shall leave; None: as soon as the kernel has it."""
        if self._departures is None:
            return None
        payload_bytes = np.add.reduceat(bursts.payload_bytes, cut.starts[:-1])
        payload_bytes += cut.packets * overhead_bytes(bursts)
        return self._departures.plan(payload_bytes, cut.packets)

    def _send_by_socket(self, bursts: Bursts, cut: Cut, names: NDArray[np.int64], vectors: Vectors) -> int:
        """Leading packets dealt with: as many as all their sockets have room for."""
        sockets = self._socket_of_path[cut.paths]
        admitted = self._admitted(bursts, cut, sockets)
        self._messages.write(cut, names, vectors, self._planned(bursts, cut))
        if self._departures is not None:
            self._departures.left(admitted)
        errors = send_by_socket(
            [entry.fileno() for entry in self._sockets],
            sockets[:admitted],
            self._messages.address,
            self.counters,
            vectors.pieces,
        )
        failed = errors.nonzero()[0]
        self.counters.packets += int(cut.starts[admitted]) - int(cut.packets[failed].sum())
        again = [message for message in failed.tolist() if not self._is_settled(cut, message, errors)]
        if again:
            blocked = self._blocked
            self._send_again(bursts, cut, np.array(again))
            self._blocked = blocked
        return int(cut.starts[admitted])

    def _is_settled(self, cut: Cut, message: int, errors: NDArray[np.int64]) -> bool:
        """What failed counts as lost, unless its packets can be sent one by one."""
        path, packets, error = int(cut.paths[message]), int(cut.packets[message]), int(errors[message])
        if error in OUR_FAULT:
            raise OSError(error, os.strerror(error))
        if error in _NO_SEGMENTATION and packets > 1:
            self._segmenting[path] = self._is_segmenting_everywhere = False
            return False
        # A socket that did not take it although it had room is as a full queue of a device.
        self._refuse(path, errno.ENOBUFS if error in FULL else error, packets)
        return True

    def _admitted(self, bursts: Bursts, cut: Cut, sockets: NDArray[np.int64]) -> int:
        """Leading messages for which their sockets have room: what one socket cannot take must not be sent
        behind its back, because packets are taken in order.
        """
        spaces = [send_space_bytes(target) for target in self._sockets]
        size_bytes = np.add.reduceat(bursts.payload_bytes, cut.starts[:-1])
        size_bytes += cut.packets * overhead_bytes(bursts)
        charges = 2 * size_bytes + _CHARGE_BYTES
        if charges.sum() <= min(spaces):
            return cut.count
        admitted = cut.count
        for place, space_bytes in enumerate(spaces):
            messages = (sockets == place).nonzero()[0]
            charged_before = charges[messages].cumsum() - charges[messages]
            over = (charged_before >= space_bytes).nonzero()[0]
            if len(over) and messages[over[0]] < admitted:
                admitted = int(messages[over[0]])
                self._blocked = self._sockets[place]
                self._blocked.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # else it is ready to tell it
        return admitted

    def _push(self, target: socket.socket, cut: Cut, first: int, end: int, pieces: int) -> tuple[int, bool]:
        """(first message not dealt with, whether it can be sent without segmentation)."""
        done = first
        while True:
            before = done
            done, error = push_messages(
                target.fileno(), self._messages.address, done, end, self.counters, pieces
            )
            self.counters.packets += int(cut.starts[done] - cut.starts[before])
            if not error:
                return done, False
            if error in FULL:
                self._blocked = None if error in EXHAUSTED else target
                return done, False
            if error in OUR_FAULT:
                raise OSError(error, os.strerror(error))
            path, packets = int(cut.paths[done]), int(cut.packets[done])
            if error in _NO_SEGMENTATION and packets > 1:
                self._segmenting[path] = self._is_segmenting_everywhere = False
                return done, True
            self._refuse(path, error, packets)
            done += 1

    def _refuse(self, path: int, error: int, packets: int) -> None:
        self._refused[path, error] += packets
        self.counters.refused_packets += packets

    def _names_of(self, paths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the struct sockaddr of each lies."""
        try:
            names: NDArray[np.int64] = self._name_of_path[paths]
            if np.minimum.reduce(names) > 0:
                return names
        except IndexError:
            pass
        unknown = sorted(set(paths.tolist()) - set(self._destinations))
        raise ValueError(f"no destination for path {', '.join(map(str, unknown))}")
