"""A certificate authority for one test, and what it vouches for.

From Python 3.13 on, a certificate is trusted only with the extensions of RFC 5280: what the key of its authority may
sign, and whose key signed it.
"""

import datetime
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFETIME = datetime.timedelta(days=2)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Certificate:
    """PEM files of a certificate and of its private key; `both` holds the two, as Kafka wants them."""

    cert: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates; whoever has `file` can check them."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        public = self._key.public_key()
        certificate = (
            _unsigned(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def certify(self, name: str, address: str = "127.0.0.1") -> Certificate:
        """A certificate for whoever is at the IP `address`."""
        key = ec.generate_private_key(ec.SECP256R1())
        place = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(address))])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _unsigned(_named(name), self._name, key)
            .add_extension(place, critical=False)
            .add_extension(issuer, critical=False)
        )
        cert = _pem(certificate.sign(self._key, hashes.SHA256()))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        made = Certificate(*(self._folder / f"{name}.{part}.pem" for part in ("cert", "key", "both")))
        for file, content in ((made.cert, cert), (made.key, private), (made.both, private + cert)):
            file.touch(0o600)
            file.write_bytes(content)
        return made


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFETIME)
        .not_valid_after(now + _LIFETIME)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
