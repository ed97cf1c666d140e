"""Serves an agent's metrics over HTTP, in the text format that Prometheus scrapes.

Reading them needs no secret and changes nothing, but it tells who talks to whom, and how much: the endpoint
is on loopback unless its user says otherwise.
"""

import errno
import logging
import os
import socket
import threading
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Protocol, Self

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.control.sockets import Endpoint, endpoint_of
from mltswitch.hostagent.telemetry.events import Observer
from mltswitch.hostagent.telemetry.snapshot import AgentSnapshot
from mltswitch.hostagent.telemetry.transfers import TransferCounts

CLIENT_SECONDS: Final = 5.0
"""A client that says nothing, or does not read, for so long is left."""
MAXIMUM_CLIENTS: Final = 8
"""At the same time; others are closed at once."""
ANSWER_SECONDS: Final = 2.0
"""For the agent's engine."""

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

        Raises UserInputError for an address that is not this machine's, or beyond loopback without
        `beyond_loopback`, MachineError where the port is taken or without the package prometheus_client,
        AgentError for a closed agent.
        """
        from mltswitch.hostagent.telemetry.metrics import AgentCollector, handler_type

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
        self._server = _opened(endpoint, handler_type(collector, CLIENT_SECONDS))
        try:
            agent.observe(self._transfers)
        except BaseException:
            self._server.server_close()
            raise
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="agent metrics", daemon=True
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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAXIMUM_CLIENTS

    def __init__(self, endpoint: Endpoint, handler: type) -> None:
        self.address_family, address = endpoint.resolved()
        self._places = threading.BoundedSemaphore(MAXIMUM_CLIENTS)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # HTTPServer's own would ask a name server who we are.
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  (the base has them)
        _log.debug("a client of the metrics endpoint went away", exc_info=True)


def _opened(endpoint: Endpoint, handler: type) -> _Server:
    try:
        return _Server(endpoint, handler)
    except OSError as error:
        where = f"metrics endpoint {endpoint}"
        if error.errno == errno.EADDRNOTAVAIL:
            raise UserInputError("is not an address of this machine", where=where) from None
        raise MachineError(f"cannot listen there: {os.strerror(error.errno or 0)}", where=where) from None
