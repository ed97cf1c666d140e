"""A job's certificates: X.509 (RFC 5280), ECDSA on P-256, which every TLS library and FIPS mode take.

Needs the package cryptography, which the base install does not have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from mltswitch.errors import MachineError, UserInputError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CLOCK_TOLERANCE: Final = timedelta(minutes=10)
"""A certificate is valid from so long ago: the hosts' clocks may be behind."""
_NAME_DIGITS: Final = 8
"""Of the serial number, in the CA's name: two jobs' CAs are told apart in errors."""

IpAddress = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class SignedHost:
    """PEM texts of one host."""

    certificate: str
    key: str
    expires: datetime


class Authority:
    """A job's CA: signs for hosts, and for nobody who signs further."""

    def __init__(self, certificate: "x509.Certificate", key: "EllipticCurvePrivateKey") -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, now: datetime, days: int) -> "Authority":
        """A new one; raises MachineError where cryptography is missing."""
        require_cryptography()
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        subject = _subject(f"mltswitch job {serial:040x}"[: -40 + _NAME_DIGITS])
        builder = _builder(subject, subject, now, now + timedelta(days=days), serial)
        certificate = _signed(
            builder,
            key,
            key,
            basic=x509.BasicConstraints(ca=True, path_length=0),
            usage=_usage(is_authority=True),
        )
        return cls(certificate, key)

    @classmethod
    def from_pem(cls, certificate: str, key: str, *, where: str) -> "Authority":
        """From `certificate_pem` and `key_pem`.

        Raises:
            UserInputError: naming `where`; not a CA and its key.
            MachineError: cryptography is missing.
        """
        require_cryptography()
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

        made = _certificate(certificate, where)
        try:
            private = serialization.load_pem_private_key(key.encode(), None)
        except (ValueError, TypeError):  # TypeError: it wants a passphrase
            raise UserInputError("the CA's key is not a PEM key without passphrase", where=where) from None
        if not isinstance(private, EllipticCurvePrivateKey) or private.public_key() != made.public_key():
            raise UserInputError("the CA's key does not belong to its certificate", where=where)
        try:
            constraints = made.extensions.get_extension_for_class(x509.BasicConstraints).value
        except (x509.ExtensionNotFound, ValueError):
            constraints = None
        if constraints is None or not constraints.ca:
            raise UserInputError("is not the certificate of a CA", where=where)
        return cls(made, private)

    @property
    def expires(self) -> datetime:
        """No certificate is valid after it."""
        return self._certificate.not_valid_after_utc

    @property
    def certificate_pem(self) -> str:
        """What every host needs to know its peers."""
        return _pem(self._certificate)

    @property
    def key_pem(self) -> str:
        """The secret of the job."""
        return _key_pem(self._key)

    def sign(self, name: str, addresses: Sequence[IpAddress], now: datetime, days: int) -> SignedHost:
        """A key and a certificate for one host: client and server, known by its name.

        Raises:
            UserInputError: it would be valid for longer than the CA.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        expires = now + timedelta(days=days)
        if expires > self.expires:
            left = (self.expires - now).days
            raise UserInputError(
                f"{days} days are more than the {max(left, 0)} days for which the job's CA is still valid"
                if left > 0
                else "the job's CA is not valid any more",
                where=name,
                hint="ask for fewer days, or make the keys of a new job in another folder",
            )
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(
            _subject(name), self._certificate.subject, now, expires, x509.random_serial_number()
        )
        alternatives = [x509.DNSName(name), *(x509.IPAddress(address) for address in addresses)]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        certificate = _signed(
            builder,
            key,
            self._key,
            basic=x509.BasicConstraints(ca=False, path_length=None),
            usage=_usage(is_authority=False),
        )
        return SignedHost(_pem(certificate), _key_pem(key), certificate.not_valid_after_utc)

    def expiry_of(self, certificate: str, *, where: str) -> datetime:
        """When a certificate of this CA ends; raises UserInputError where it is none, or another CA's."""
        from cryptography.exceptions import InvalidSignature

        made = _certificate(certificate, where)
        try:
            made.verify_directly_issued_by(self._certificate)
        except (ValueError, TypeError, InvalidSignature):
            raise UserInputError("is not signed by this job's CA", where=where) from None
        return made.not_valid_after_utc


def require_cryptography() -> None:
    """Raises MachineError where the package is missing."""
    try:
        import cryptography  # noqa: F401  (is it there?)
    except ImportError:
        raise MachineError(
            "the Python package cryptography is missing", hint="`pip install 'mltswitch[agent]'`"
        ) from None


def parse_address(text: str) -> IpAddress:
    """An address of a host; raises UserInputError."""
    try:
        return ip_address(text)
    except ValueError:
        raise UserInputError("is not an IP address", where=text[:60]) from None


def addresses_in(certificate: str, *, where: str) -> frozenset[IpAddress]:
    """The IP addresses that a host's certificate names; raises UserInputError where it is none."""
    from cryptography import x509

    made = _certificate(certificate, where)
    try:
        named = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    found = named.get_values_for_type(x509.IPAddress)
    return frozenset(address for address in found if isinstance(address, IPv4Address | IPv6Address))


def now_utc() -> datetime:
    """In whole seconds, as certificates have it."""
    return datetime.now(UTC).replace(microsecond=0)


def _certificate(text: str, where: str) -> "x509.Certificate":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(text.encode())
    except ValueError:
        raise UserInputError("is not a certificate in PEM", where=where) from None


def _subject(name: str) -> "x509.Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _builder(
    subject: "x509.Name", issuer: "x509.Name", now: datetime, expires: datetime, serial: int
) -> "x509.CertificateBuilder":
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(expires)
        .serial_number(serial)
    )


def _signed(
    builder: "x509.CertificateBuilder",
    key: "EllipticCurvePrivateKey",
    signer: "EllipticCurvePrivateKey",
    *,
    basic: "x509.BasicConstraints",
    usage: "x509.KeyUsage",
) -> "x509.Certificate":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    public, authority = key.public_key(), signer.public_key()
    return (
        builder.public_key(public)
        .add_extension(basic, critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _usage(*, is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: "x509.Certificate") -> str:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: "EllipticCurvePrivateKey") -> str:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
