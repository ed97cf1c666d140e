"""Serves an agent's metrics over HTTP, in the text format that Prometheus scrapes.

Reading them needs no secret and changes nothing, but it tells who talks to whom, and how much: the endpoint
is on loopback unless its user says otherwise.
"""

import errno
import io
import logging
import os
import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Protocol, Self

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.arguments import endpoint_given
from mltswitch.hostagent.control.sockets import Endpoint, endpoint_of
from mltswitch.hostagent.forks import not_in_children
from mltswitch.hostagent.telemetry.events import Observer
from mltswitch.hostagent.telemetry.snapshot import AgentSnapshot
from mltswitch.hostagent.telemetry.transfers import TransferCounts

CLIENT_SECONDS: Final = 5.0
"""A client has so long in all, to ask and to read the answer; then it is left."""
MAXIMUM_CLIENTS: Final = 8
"""At the same time; others are told to come again."""
ANSWER_SECONDS: Final = 2.0
"""For the agent's engine."""
_TURN_SECONDS: Final = 0.1
_METHODS: Final = "GET, HEAD"
_BUSY: Final = (
    f"HTTP/1.0 503 Service Unavailable\r\nRetry-After: {CLIENT_SECONDS:.0f}\r\nContent-Length: 0\r\n"
    "Connection: close\r\n\r\n"
).encode()
_REQUEST_BYTES: Final = 1 << 16

_log = logging.getLogger(__name__)


class Measured(Protocol):
    """An `Agent`, as far as metrics need it."""

    def observe(self, observer: Observer) -> None:
        """Tell it from now on what happens."""
        ...

    def stop_observing(self, observer: Observer) -> None:
        """Tell it nothing more."""
        ...

    def snapshot(self, timeout_seconds: float) -> AgentSnapshot:
        """What has been counted; raises AgentError."""
        ...


class MetricsServer:
    """An open endpoint; a context manager that closes it."""

    def __init__(self, agent: Measured, endpoint: Endpoint, *, beyond_loopback: bool = False) -> None:
        """Opens it, at any path of the URL; port 0: the kernel chooses.

        Raises UserInputError for what is no `Endpoint`, for an address that is not this machine's, or beyond
        loopback without `beyond_loopback`, MachineError where the port is taken or without the package
        prometheus_client, AgentError for a closed agent.
        """
        from mltswitch.hostagent.telemetry.metrics import AgentCollector, handler_type

        endpoint = endpoint_given("endpoint", endpoint)
        if not endpoint.ip.is_loopback and not beyond_loopback:
            raise UserInputError(
                "is open to other machines, without any check of who asks",
                where=f"metrics endpoint {endpoint}",
                expected="an address of loopback",
                hint="if that is wanted, say so: `--open-metrics`, `beyond_loopback=True` in Python",
            )
        self._agent = agent
        self._transfers = TransferCounts()
        collector = AgentCollector(lambda: agent.snapshot(ANSWER_SECONDS), self._transfers)
        answering = handler_type(collector, CLIENT_SECONDS)
        self._server = _opened(endpoint, type("Handler", (_Methods, answering), {}))
        try:
            agent.observe(self._transfers)
        except BaseException:
            self._server.server_close()
            raise
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_TURN_SECONDS,), name="agent metrics", daemon=True
        )
        self._thread.start()

    @property
    def listening_at(self) -> Endpoint:
        """Where it is, with the port that the kernel chose."""
        return endpoint_of(self._server.server_address)

    def close(self) -> None:
        """May be called again, before or after the agent's."""
        if self._thread.is_alive():
            self._agent.stop_observing(self._transfers)
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class _Methods(BaseHTTPRequestHandler):
    """What may be asked for: GET is answered by the class that this one is mixed with, HEAD as GET without
    the body, and nothing else is."""

    def do_HEAD(self) -> None:
        self.do_GET()  # type: ignore[attr-defined]  # the other class has it

    def end_headers(self) -> None:
        super().end_headers()
        if self.command == "HEAD":
            self.wfile = io.BytesIO()  # what follows is the body

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # The base says 501 for methods that it finds no function for, which would mean: perhaps one day.
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code, message = HTTPStatus.METHOD_NOT_ALLOWED, None
        super().send_error(code, message, explain)

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(code, message)
        if code == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", _METHODS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAXIMUM_CLIENTS

    def __init__(self, endpoint: Endpoint, handler: type) -> None:
        self.address_family, address = endpoint.resolved()
        self._lock = threading.Lock()
        self._ends: dict[socket.socket, float] = {}
        """Clients that are served, and until when."""
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # HTTPServer's own would ask a name server who we are.
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        not_in_children(self.socket)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            has_room = len(self._ends) < MAXIMUM_CLIENTS
            if has_room:
                self._ends[request] = time.monotonic() + CLIENT_SECONDS
        if has_room:
            super().process_request(request, client_address)  # where it fails, the request is shut down, too
        else:
            _turn_away(request)
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:  # from here on its descriptor may soon be somebody else's
            self._ends.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Leaves clients whose time is over, however often they say a little: their threads see the end."""
        now = time.monotonic()
        with self._lock:
            for request, end in self._ends.items():
                if now >= end:
                    with suppress(OSError):  # it has gone by itself
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  (the base has them)
        _log.debug("a client of the metrics endpoint went away", exc_info=True)


def _turn_away(request: socket.socket) -> None:
    """Without waiting for it: the answer is short enough for any socket's buffer."""
    request.setblocking(False)
    with suppress(OSError):
        request.send(_BUSY)
        request.recv(_REQUEST_BYTES)  # a socket that is closed with something unread resets the connection


def _opened(endpoint: Endpoint, handler: type) -> _Server:
    try:
        return _Server(endpoint, handler)
    except OSError as error:
        where = f"metrics endpoint {endpoint}"
        if error.errno == errno.EADDRNOTAVAIL:
            raise UserInputError("is not an address of this machine", where=where) from None
        raise MachineError(f"cannot listen there: {os.strerror(error.errno or 0)}", where=where) from None
