"""Keys good and bad, and two ends driven by hand."""

import select
import socket
import ssl
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mltswitch.hostagent.control.certificates import Authority
from mltswitch.hostagent.control.channel import ChannelSettings, ControlChannel
from mltswitch.hostagent.control.credentials import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, Credentials
from mltswitch.hostagent.control.listener import ControlListener
from mltswitch.hostagent.control.security import Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.control.tls import TlsIdentity, load_identity
from mltswitch.hostagent.errors import AgentError

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
LOOPBACK = Endpoint("127.0.0.1", 0)
SETTINGS = ChannelSettings(dscp=40)
SECOND_NS = 10**9
PATIENCE_SECONDS = 20
"""Far beyond what loopback needs; a test that waits so long has failed."""


def new_authority() -> Authority:
    return Authority.create(NOW - 100 * DAY, 1000)


@dataclass
class Job:
    """Folders of keys, made as they are asked for."""

    root: Path
    authority: Authority = field(default_factory=new_authority)

    def credentials(
        self,
        name: str,
        *,
        since: datetime = NOW,
        days: int = 30,
        signer: Authority | None = None,
        believed: Authority | None = None,
    ) -> Credentials:
        """Of one host: signed by the job's CA or another, believing in the job's CA or another."""
        folder = self.root / f"{name}-{len(list(self.root.iterdir()))}"
        folder.mkdir(mode=0o700)
        host = (signer or self.authority).sign(name, [], since, days)
        return self.stored(folder, (believed or self.authority).certificate_pem, host.certificate, host.key)

    def stored(self, folder: Path, authority: str, certificate: str, key: str) -> Credentials:
        for name, text in ((AUTHORITY_FILE, authority), (CERTIFICATE_FILE, certificate), (KEY_FILE, key)):
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRUSR | stat.S_IWUSR)
        return Credentials.in_folder(folder)

    def identity(self, name: str) -> TlsIdentity:
        return load_identity(self.credentials(name))


def listening(security: Security, settings: ChannelSettings = SETTINGS) -> ControlListener:
    return ControlListener(LOOPBACK, security, settings)


def wait(*ends: ControlChannel | ControlListener, writes: bool = False) -> None:
    """Until the kernel has something for one of them."""
    ready = select.select(ends, ends if writes else [], [], PATIENCE_SECONDS)
    assert ready[0] or ready[1], "nothing happens any more"


@contextmanager
def nobody_listens(address: str = LOOPBACK.address) -> Iterator[Endpoint]:
    """A place that is taken, and refuses."""
    with socket.socket() as taken:
        taken.bind((address, 0))
        yield Endpoint(address, taken.getsockname()[1])


def accepted(listener: ControlListener, now_ns: int = 0) -> ControlChannel:
    wait(listener)
    (channel,) = listener.accept(now_ns)
    return channel


def connected(
    listener: ControlListener,
    client: Security,
    *,
    peer: str = "server",
    settings: ChannelSettings = SETTINGS,
) -> tuple[ControlChannel, ControlChannel]:
    """Both ends, not set up yet."""
    channel = ControlChannel.connect(listener.local, peer, client, settings, 0)
    return channel, accepted(listener)


@dataclass
class Told:
    """What one end has heard, and how it ended."""

    channel: ControlChannel
    said: bytearray = field(default_factory=bytearray)
    error: AgentError | None = None

    def step(self, now_ns: int = 0) -> None:
        if self.error is not None:
            return
        try:
            self.said += self.channel.step(now_ns)
        except AgentError as error:
            self.error = error
            self.channel.close()


def drive(ends: Sequence[ControlChannel], until: Callable[[Sequence[Told]], bool]) -> Sequence[Told]:
    """As an engine does: step whoever is ready, until this holds of all that was heard."""
    told = [Told(channel) for channel in ends]
    while not until(told):
        living = [end.channel for end in told if end.error is None]
        readers = [channel for channel in living if channel.wants_read]
        writers = [channel for channel in living if channel.wants_write]
        ready = select.select(readers, writers, [], PATIENCE_SECONDS)
        assert any(ready), f"nothing happens any more: {told}"
        for end in told:
            if end.channel in ready[0] or end.channel in ready[1]:
                end.step()
    return told


def all_open(told: Sequence[Told]) -> bool:
    assert not [end.error for end in told if end.error]
    return all(end.channel.is_open for end in told)


def all_ended(told: Sequence[Told]) -> bool:
    return all(end.error is not None for end in told)


def opened_pair(
    client: Security, server: Security, settings: ChannelSettings = SETTINGS
) -> tuple[ControlChannel, ControlChannel]:
    """Two ends that have accepted each other (plain text: the client says b'!' for that)."""
    listener = listening(server, settings)
    ends = connected(listener, client, settings=settings)
    listener.close()
    if not isinstance(server, TlsIdentity):
        ends[0].send(b"!")
    drive(ends, all_open)
    return ends


def raw_connection(listener: ControlListener) -> socket.socket:
    """A stranger."""
    connection = socket.create_connection((listener.local.address, listener.local.port))
    connection.settimeout(PATIENCE_SECONDS)
    return connection


def unproved(
    credentials: Credentials | None,
    believed: Path,
    maximum: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
) -> TlsIdentity:
    """Contexts as `load_identity` makes them, of keys that it would refuse; None: without any."""
    contexts = []
    for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
        context = ssl.SSLContext(protocol)
        context.maximum_version = maximum
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(believed)
        if credentials is not None:
            context.load_cert_chain(credentials.certificate, credentials.key)
        contexts.append(context)
    return TlsIdentity("unproved", NOW, *contexts)
