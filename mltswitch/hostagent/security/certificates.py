"""A job's certificates: X.509 (RFC 5280), ECDSA on P-256, which every TLS library and FIPS mode take.

Needs the package cryptography: imported where keys are made or used, and nowhere else.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mltswitch.errors import MachineError, UserInputError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise MachineError("cryptography is missing", hint="`pip install 'mltswitch[agent]'`") from None

CLOCK_TOLERANCE: Final = timedelta(minutes=10)
"""How far in the past a new certificate's validity begins: the hosts' clocks may be behind."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate and its private key, of a CA or of a host."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def pem(self) -> tuple[bytes, bytes]:
        """Certificate and private key in PEM, without passphrase: an agent starts unattended."""
        as_pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        key = self.key.private_bytes(as_pem, serialization.PrivateFormat.PKCS8, plain)
        return self.certificate.public_bytes(as_pem), key


def issue(name: str, now: datetime, days: int, authority: Signed | None = None) -> Signed:
    """Issue a host's certificate, for TLS client and server; without authority: that of a CA of hosts alone.

    A host's certificate is valid no longer than that of its CA.
    """
    is_authority, expires = authority is None, now + timedelta(days=days)
    if authority is not None and expires > authority.certificate.not_valid_after_utc:
        left = max(0, (authority.certificate.not_valid_after_utc - now).days)
        hint = "ask for fewer days, or make the keys of a new job in another folder"
        what = f"{days} days are more than the {left} days for which the job's CA is still valid"
        raise UserInputError(what, where=f"host {name}", hint=hint)
    key = ec.generate_private_key(ec.SECP256R1())
    signer = authority.key if authority else key
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signs, certifies, no = not is_authority, is_authority, False
    usage = x509.KeyUsage(signs, no, no, no, no, certifies, certifies, no, no)
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), True),
        (usage, True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
    ]
    if not is_authority:
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        extensions += [(x509.SubjectAlternativeName([x509.DNSName(name)]), False), (both, False)]
    issuer = authority.certificate.subject if authority else subject
    serial, since = x509.random_serial_number(), now - CLOCK_TOLERANCE
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), serial, since, expires)
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, is_critical)
    return Signed(builder.sign(signer, hashes.SHA256()), key)


def is_for_tls(certificate: bytes, *, client: bool) -> bool:
    """Whether a DER certificate's extended key usages include this side of TLS."""
    try:
        extensions = x509.load_der_x509_certificate(certificate).extensions
        usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return False
    return (ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH) in usages


def load(pem: bytes, *, where: str, authority: Signed | None = None) -> x509.Certificate:
    """A stored certificate, signed by this authority (None: by any). Raises UserInputError naming `where`."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        if authority is not None:
            certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        raise UserInputError("is no certificate of this job's CA, in PEM", where=where) from None
    return certificate


def load_authority(certificate: bytes, key: bytes, *, where: str) -> Signed:
    """A stored CA with its private key; raises UserInputError naming `where`."""
    made = load(certificate, where=where)
    try:
        private = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError):  # TypeError: it wants a passphrase
        private = None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != made.public_key():
        raise UserInputError("the CA's key is not its certificate's, in PEM without passphrase", where=where)
    return Signed(made, private)
