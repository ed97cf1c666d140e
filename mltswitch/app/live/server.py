"""The live page over HTTP: one page, and one stream of events for each reader.

Whoever reads gets the newest state when it has taken the one before, and never a queue of them: a slow one
misses states, and one that takes nothing is hung up on. Without a token the server answers only where it was
asked for by an address or as localhost: a page of somebody else whose name is led to 127.0.0.1 (DNS
rebinding) learns nothing.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from importlib.resources import files
from ipaddress import ip_address
from typing import Any, Final

from mltswitch.errors import MachineError
from mltswitch.hostagent.endpoint import Endpoint

MOST_READERS: Final = 64
"""At once; later ones are refused with 503."""
MOST_CONNECTIONS: Final = 256
"""With those that have not asked yet; later ones are hung up on."""
HEAD_BYTES: Final = 16 << 10
"""Of a request with all its headers; whoever sends more is hung up on."""
REQUEST_SECONDS: Final = 5.0
"""In which a request is there."""
WRITE_SECONDS: Final = 10.0
"""In which a reader takes what it was sent."""
SILENCE_SECONDS: Final = 15.0
"""After which a line without meaning is sent, by which a reader that has gone is noticed."""
TOKEN_BYTES: Final = 24
PAGE: Final = "page.html"

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address may hold the token
    "X-Content-Type-Options": "nosniff",
    "Connection": "close",
}

_GONE: Final = (
    OSError,
    TimeoutError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,
    asyncio.CancelledError,
)
"""The reader has gone, takes or asks nothing, or asks without end; or the watch ends: we hang up."""


class _RefusedError(Exception):
    """A request that is answered with a status alone."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class LivePage:
    """What the readers of the page see; `publish` may be called by any one thread."""

    def __init__(self, endpoint: Endpoint, fabric: dict[str, Any], token: str) -> None:
        self._token = token.encode()
        self._first = b"retry: 2000\n" + _event("fabric", fabric)
        self._newest = b""
        self._number = 0
        self._changed = asyncio.Event()
        self._connections = 0
        self.readers = 0
        """Streams that are open now."""
        self._page, self._policy = _page()
        place = Endpoint(socket.gethostname(), endpoint.port) if endpoint.ip.is_unspecified else endpoint
        self.url: Final = f"http://{place}/{f'{token}/' if token else ''}"
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()

    def publish(self, state: dict[str, Any]) -> None:
        """Show this from now on."""
        event = _event("reading", state)
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._take, event)

    def run(self, listening: socket.socket) -> None:
        """Serve until `stop`, in this thread."""
        try:
            self._loop.run_until_complete(self._serve(listening))
        finally:
            self._loop.close()

    def stop(self) -> None:
        """Hang up on all readers; may be called from another thread."""
        self._loop.call_soon_threadsafe(self._stop.set)

    def _take(self, event: bytes) -> None:
        self._newest, self._number = event, self._number + 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._accept, sock=listening, limit=HEAD_BYTES)
        await self._stop.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # what drain waits for is that all has been taken
        self._connections += 1
        try:
            if self._connections <= MOST_CONNECTIONS:
                with suppress(*_GONE):
                    await self._answer(reader, writer)
        finally:
            self._connections -= 1
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(REQUEST_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            place = self._place(head.decode("latin-1"))
        except _RefusedError as refused:
            await _respond(writer, refused.status, "text/plain; charset=utf-8", f"{refused}\n".encode())
            return
        if place != "events":
            policy = {"Content-Security-Policy": self._policy}
            await _respond(writer, HTTPStatus.OK, "text/html; charset=utf-8", self._page, policy)
            return
        self.readers += 1
        try:
            await self._stream(writer)
        finally:
            self.readers -= 1

    def _place(self, head: str) -> str:
        """What is asked for, below the token: empty for the page, or `events`."""
        first, *lines = head.split("\r\n")
        method, _, rest = first.partition(" ")
        target, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "no request of HTTP/1")
        hosts = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")]
        if len(hosts) != 1 or not (self._token or _is_ours(hosts[0])):
            raise _RefusedError(
                HTTPStatus.MISDIRECTED_REQUEST, "open this page by its address, or as localhost"
            )
        path = target.partition("?")[0].removeprefix("/")
        if self._token:
            token, _, path = path.partition("/")
            if not hmac.compare_digest(token.encode(), self._token):
                raise _RefusedError(
                    HTTPStatus.FORBIDDEN, "open the whole address that mltswitch watch printed"
                )
        if path not in {"", "events"}:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "there is one page here")
        if method != "GET":
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "there is only something to get")
        if path == "events" and self.readers >= MOST_READERS:
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "too many readers")
        return path

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        await _send(writer, _head(HTTPStatus.OK, {"Content-Type": "text/event-stream; charset=utf-8"}))
        await _send(writer, self._first)
        seen = 0
        while True:
            changed = self._changed
            if self._number > seen:
                seen = self._number
                await _send(writer, self._newest)
                continue
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    await changed.wait()
            except TimeoutError:
                await _send(writer, b":\n\n")


@contextmanager
def serve_page(endpoint: Endpoint, fabric: dict[str, Any]) -> Iterator[LivePage]:
    """Open the page of a fabric; port 0: any that is free. Beyond loopback its address holds a token.

    Raises MachineError where the address cannot be listened at.
    """
    family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
    try:
        listening = socket.create_server((endpoint.address, endpoint.port), family=family)
    except OSError as error:
        raise MachineError(
            f"cannot listen there: {error.strerror or error}",
            where=f"page {endpoint}",
            hint="name another port, or port 0 for any that is free",
        ) from None
    token = "" if endpoint.ip.is_loopback else secrets.token_urlsafe(TOKEN_BYTES)
    page = LivePage(Endpoint(endpoint.address, listening.getsockname()[1]), fabric, token)
    thread = threading.Thread(target=page.run, args=(listening,), name="live page", daemon=True)
    thread.start()
    try:
        yield page
    finally:
        page.stop()
        thread.join()


def _is_ours(host: str) -> bool:
    """Whether a Host header names an address, or localhost: no name that somebody else could lead here."""
    name = re.sub(r":[0-9]+$", "", host)
    if name.lower() == "localhost":
        return True
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _page() -> tuple[bytes, str]:
    """The page, and the policy under which a browser runs its own style and script and nothing else."""
    page = files("mltswitch.app.live").joinpath(PAGE).read_text(encoding="utf-8")
    allowed = {
        tag: " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            for text in re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        )
        for tag in ("style", "script")
    }
    policy = (
        f"default-src 'none'; style-src {allowed['style']}; script-src {allowed['script']}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return page.encode(), policy


def _event(name: str, document: dict[str, Any]) -> bytes:
    data = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return f"event: {name}\ndata: {data}\n\n".encode(errors="replace")  # a device's words may be no text


def _head(status: HTTPStatus, headers: dict[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        *(f"{k}: {v}" for k, v in (_HEADERS | headers).items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def _respond(
    writer: asyncio.StreamWriter,
    status: HTTPStatus,
    kind: str,
    body: bytes,
    more: dict[str, str] | None = None,
) -> None:
    headers = {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = "GET"
    await _send(writer, _head(status, headers) + body)
    writer.close()  # what the kernel has taken is sent to its end
    async with asyncio.timeout(WRITE_SECONDS):
        await writer.wait_closed()


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    async with asyncio.timeout(WRITE_SECONDS):  # `wait_for` of Python 3.11 may lose the end of the watch here
        await writer.drain()
