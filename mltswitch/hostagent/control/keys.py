"""The keys of one job, as files: a CA, and a folder for each host that is copied to it.

    FOLDER/ca/certificate.pem, key.pem                 keep it off the training hosts
    FOLDER/hosts/NAME/ca.pem, certificate.pem, key.pem   belongs to host NAME

Folders have mode 0700 and files 0600 from their first byte on. Everything is on the disk before the first
folder takes its place.
"""

import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.certificates import (
    Authority,
    IpAddress,
    SignedHost,
    addresses_in,
    require_cryptography,
)
from mltswitch.hostagent.control.credentials import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, read_pem
from mltswitch.hostagent.control.identity import host_name_problem

AUTHORITY_FOLDER: Final = "ca"
HOSTS_FOLDER: Final = "hosts"
MAXIMUM_DAYS: Final = 3650
MAXIMUM_HOSTS: Final = 100_000
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class HostKeys:
    """One host's folder."""

    name: str
    folder: Path
    expires: datetime
    is_new: bool
    """False: it had keys before, and they were left alone."""


@dataclass(frozen=True, slots=True)
class JobKeys:
    """All that belongs to one job."""

    authority_certificate: Path
    authority_key: Path
    authority_expires: datetime
    authority_is_new: bool
    hosts: tuple[HostKeys, ...]


def make_keys(
    folder: Path,
    hosts: Mapping[str, Sequence[IpAddress]],
    *,
    days: int,
    authority_days: int,
    now: datetime,
    replace: bool = False,
) -> JobKeys:
    """Keys for hosts (name → addresses to name in the certificate beside it) below `folder`.

    The first call makes the job's CA, later ones use it. A host that has keys keeps them, unless `replace`;
    they have to name the addresses that are asked for.

    Raises:
        UserInputError: a name, a number of days, or what stands in the folder; then nothing has changed.
        MachineError: the package cryptography is missing.
    """
    require_cryptography()
    _check(hosts, days, authority_days)
    with _writing(folder):
        is_new = not folder.exists() or not any(folder.iterdir())
    if is_new:
        authority = Authority.create(now, authority_days)
        kept: dict[str, HostKeys] = {}
    else:
        authority = _stored_authority(folder)
        kept = {} if replace else _kept(folder, hosts, authority)
    signed = {
        name: authority.sign(name, addresses, now, days)
        for name, addresses in hosts.items()
        if name not in kept
    }
    _write(folder, authority if is_new else None, authority.certificate_pem, signed)
    made = {
        name: HostKeys(name, folder / HOSTS_FOLDER / name, host.expires, is_new=True)
        for name, host in signed.items()
    }
    return JobKeys(
        authority_certificate=folder / AUTHORITY_FOLDER / CERTIFICATE_FILE,
        authority_key=folder / AUTHORITY_FOLDER / KEY_FILE,
        authority_expires=authority.expires,
        authority_is_new=is_new,
        hosts=tuple((kept | made)[name] for name in hosts),
    )


def _check(hosts: Mapping[str, Sequence[IpAddress]], days: int, authority_days: int) -> None:
    if not hosts:
        raise UserInputError("no hosts", hint="name them, or give the plan that knows them")
    if len(hosts) > MAXIMUM_HOSTS:
        raise UserInputError(f"{len(hosts)} hosts", expected=f"{MAXIMUM_HOSTS} or fewer")
    for name in hosts:
        problem = host_name_problem(name)
        if problem:
            raise UserInputError(problem, where=f"host {name[:80]}")
    for what, number in (("a host's certificate", days), ("the CA", authority_days)):
        if not 1 <= number <= MAXIMUM_DAYS:
            raise UserInputError(f"{number} days for {what}", expected=f"1-{MAXIMUM_DAYS}")
    if days > authority_days:
        raise UserInputError(
            f"certificates for {days} days would outlive their CA of {authority_days} days",
            hint="give the CA more days, or the certificates fewer",
        )


def _stored_authority(folder: Path) -> Authority:
    place = folder / AUTHORITY_FOLDER
    with _reading(folder):
        has_authority, is_job = place.is_dir(), (folder / HOSTS_FOLDER).is_dir()
    if not has_authority:
        raise UserInputError(
            "this job's CA is not here" if is_job else "is neither empty nor a job's folder of keys",
            where=str(folder),
            hint="put its folder ca back for as long as you sign" if is_job else "give another folder",
        )
    mode = stat.S_IMODE(place.stat().st_mode)
    if mode & ~_FOLDER_MODE:
        raise UserInputError(
            f"others than its owner may enter it (mode {mode:04o})",
            where=str(place),
            hint=f"`chmod 700 {place}`",
        )
    return Authority.from_pem(
        read_pem(place / CERTIFICATE_FILE), read_pem(place / KEY_FILE, is_private=True), where=str(place)
    )


def _kept(
    folder: Path, hosts: Mapping[str, Sequence[IpAddress]], authority: Authority
) -> dict[str, HostKeys]:
    kept = {}
    for name, addresses in hosts.items():
        place = folder / HOSTS_FOLDER / name
        if os.path.lexists(place):
            file = place / CERTIFICATE_FILE
            certificate = read_pem(file)
            expires = authority.expiry_of(certificate, where=str(file))
            named = addresses_in(certificate, where=str(file))
            missing = [address for address in addresses if address not in named]
            if missing:
                raise UserInputError(
                    f"has keys that do not name {', '.join(map(str, missing))}",
                    where=f"host {name}",
                    hint="make new ones (--force) and copy them to it, or leave out the address",
                )
            kept[name] = HostKeys(name, place, expires, is_new=False)
    return kept


def _write(
    folder: Path, new_authority: Authority | None, authority_pem: str, signed: Mapping[str, SignedHost]
) -> None:
    """Into a folder of our own beside the place, then all of it at once; or, in an old job, host by host."""
    if not signed:
        return
    folder = Path(os.path.realpath(folder))
    parent = folder.parent if new_authority else folder
    staging = parent / f".{folder.name}.{secrets.token_hex(4)}"
    with _writing(folder):
        parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        try:
            staging.mkdir(mode=_FOLDER_MODE)
            if new_authority is not None:
                files = {CERTIFICATE_FILE: authority_pem, KEY_FILE: new_authority.key_pem}
                _write_folder(staging / AUTHORITY_FOLDER, files)
            (staging / HOSTS_FOLDER).mkdir(mode=_FOLDER_MODE)
            for name, host in signed.items():
                files = {
                    AUTHORITY_FILE: authority_pem,
                    CERTIFICATE_FILE: host.certificate,
                    KEY_FILE: host.key,
                }
                _write_folder(staging / HOSTS_FOLDER / name, files)
            if new_authority is not None:
                staging.rename(folder)
            else:
                _move_hosts(staging, folder, signed)
            _synchronise(parent)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _move_hosts(staging: Path, folder: Path, names: Mapping[str, object]) -> None:
    """Each host has its old folder or its new one, complete; an old one leaves with the staging folder."""
    (folder / HOSTS_FOLDER).mkdir(mode=_FOLDER_MODE, exist_ok=True)
    replaced = staging / "replaced"
    replaced.mkdir(mode=_FOLDER_MODE)
    for name in names:
        place = folder / HOSTS_FOLDER / name
        if os.path.lexists(place):
            place.rename(replaced / name)
        try:
            (staging / HOSTS_FOLDER / name).rename(place)
        except OSError:
            if os.path.lexists(replaced / name):
                (replaced / name).rename(place)
            raise
    _synchronise(folder / HOSTS_FOLDER)


def _write_folder(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(mode=_FOLDER_MODE)
    for name, text in files.items():
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    _synchronise(folder)


def _synchronise(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(folder)) from None


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(folder)) from None


def days_left(expires: datetime, now: datetime) -> int:
    """Whole days for which a certificate is still valid; below 0: it is not."""
    return (expires - now) // timedelta(days=1)
