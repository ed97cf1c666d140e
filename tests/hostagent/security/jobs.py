"""Keys good and bad, and two ends that meet over asyncio's own streams."""

import asyncio
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mltswitch.hostagent.errors import AgentError, PeerUnreachableError
from mltswitch.hostagent.security.certificates import Signed, issue
from mltswitch.hostagent.security.tls import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    TlsIdentity,
    peer_name,
    refusal,
)

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
Context = ssl.SSLContext | None
CLIENT_SAYS, SERVER_SAYS = b"from the client", b"from the server"
PATIENCE_SECONDS = 20
"""Far beyond what loopback needs; a test that waits so long has failed."""


def new_authority() -> Signed:
    return issue("a job", NOW - 100 * DAY, 1000)


@dataclass
class Job:
    """Folders of keys, made as they are asked for."""

    root: Path
    authority: Signed = field(default_factory=new_authority)

    def credentials(
        self,
        name: str,
        *,
        since: datetime = NOW,
        signer: Signed | None = None,
        believed: Signed | None = None,
    ) -> Path:
        """Signed by the job's CA or another, believing in the job's CA or another."""
        return self.stored(issue(name, since, 30, signer or self.authority), believed)

    def by_hand(
        self,
        names: Sequence[str],
        usages: Sequence[x509.ObjectIdentifier],
        *,
        subject: str = "a",
    ) -> Path:
        """A certificate of the job's CA as `make_keys` would never make it."""
        key = ec.generate_private_key(ec.SECP256R1())
        named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        signer = self.authority.key.public_key()
        builder = x509.CertificateBuilder(
            self.authority.certificate.subject, named, key.public_key(), 7, NOW - DAY, NOW + DAY
        ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
        if names:
            alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return self.stored(Signed(builder.sign(self.authority.key, hashes.SHA256()), key))

    def stored(self, host: Signed, believed: Signed | None = None) -> Path:
        folder = self.root / secrets.token_hex(8)
        folder.mkdir()
        certificate, key = host.pem()
        authority, _ = (believed or self.authority).pem()
        for name, content in ((AUTHORITY_FILE, authority), (CERTIFICATE_FILE, certificate), (KEY_FILE, key)):
            (folder / name).touch(0o600)
            (folder / name).write_bytes(content)
        return folder


def unproved(keys: Path, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> TlsIdentity:
    """Contexts of keys that `load_identity` would not take, or not of this version alone."""
    good = (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    for context in good:
        context.minimum_version = context.maximum_version = version
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(keys / AUTHORITY_FILE)
        context.load_cert_chain(keys / CERTIFICATE_FILE, keys / KEY_FILE)
    return TlsIdentity("", NOW, *good)


@dataclass
class End:
    name: str = ""
    heard: bytes = b""
    error: AgentError | None = None


async def _speak(end: End, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytes) -> None:
    try:
        tls = writer.get_extra_info("ssl_object")
        end.name = peer_name(tls, is_client=said == SERVER_SAYS) if tls else ""
        writer.write(said)
        end.heard = await reader.read(100)
    except OSError as error:
        end.error = (
            refusal(error, "") if isinstance(error, ssl.SSLError) else PeerUnreachableError(repr(error))
        )
    except AgentError as error:
        end.error = error
    finally:
        writer.close()


async def _meet(client: Context, server: Context, expected: str) -> tuple[End, End]:
    near, far = End(), End()
    served = asyncio.Event()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _speak(far, reader, writer, SERVER_SAYS)
        served.set()

    listener = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=server)
    try:
        reader, writer = await asyncio.open_connection(
            *listener.sockets[0].getsockname(), ssl=client, server_hostname=expected if client else None
        )
        await _speak(near, reader, writer, CLIENT_SAYS)
        await served.wait()
    except ssl.SSLError as error:
        near.error = refusal(error, expected)
    finally:
        listener.close()
    return near, far


def meet(client: Context, server: Context, expected: str = "server") -> tuple[End, End]:
    """One connection over loopback: what the client and what the server has learned."""
    return asyncio.run(asyncio.wait_for(_meet(client, server, expected), PATIENCE_SECONDS))
