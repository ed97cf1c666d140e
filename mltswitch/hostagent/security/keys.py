"""The keys of one job, as files: a CA, and a folder for each host that is copied to it.

    FOLDER/ca/certificate.pem, key.pem                   keep it off the training hosts
    FOLDER/hosts/NAME/ca.pem, certificate.pem, key.pem   belongs to host NAME

Folders have mode 0700 and files 0600 from their first byte on. Everything is written before the first
folder takes its place.
"""

import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.endpoint import host_name_problem
from mltswitch.hostagent.security.tls import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, opened_key

if TYPE_CHECKING:
    from mltswitch.hostagent.security.certificates import Signed

_FOLDER_MODE: Final = 0o700


@dataclass(frozen=True, slots=True)
class KeyFolder:
    """A folder with a certificate and its key, of the CA or of one host."""

    name: str
    folder: Path
    expires: datetime
    is_new: bool
    """Whether the folder was made just now; False: it existed before and was left alone."""


@dataclass(frozen=True, slots=True)
class JobKeys:
    """The key folders of one job: that of its CA and those of its hosts."""

    authority: KeyFolder
    hosts: tuple[KeyFolder, ...]


def make_keys(
    folder: Path,
    names: Iterable[str],
    *,
    days: int = 30,
    authority_days: int = 365,
    replace: bool = False,
    now: datetime | None = None,
) -> JobKeys:
    """Make keys for hosts below `folder`. The first call makes the job's CA, later ones use it.

    A host that has keys keeps them, unless `replace`. Raises UserInputError, and then nothing has changed.
    """
    from mltswitch.hostagent.security.certificates import issue, load, load_authority

    names = list(dict.fromkeys(names))
    if not names:
        raise UserInputError("no hosts", hint="name them, or give the plan that knows them")
    for name in names:
        problem = host_name_problem(name)
        if problem:
            raise UserInputError(problem, where=f"host {name[:80]}")
    now = (now or datetime.now(UTC)).replace(microsecond=0)  # certificates know whole seconds
    ours, hosts = folder / "ca", folder / "hosts"
    signed, made = {}, []
    try:
        is_new = not folder.exists() or not any(folder.iterdir())
        if is_new:  # two jobs' CAs are told apart in errors
            authority = issue(f"mltswitch job {secrets.token_hex(4)}", now, authority_days)
        elif ours.is_dir():
            with opened_key(ours / KEY_FILE) as key:
                secret = os.read(key, 1 << 16)
            authority = load_authority((ours / CERTIFICATE_FILE).read_bytes(), secret, where=str(ours))
        else:
            hint = "put its folder ca back for as long as you sign, or give another folder"
            raise UserInputError("holds no CA of a job, and is not empty", where=str(folder), hint=hint)
        for name in names:
            place = hosts / name
            is_kept = os.path.lexists(place) and not replace
            if is_kept:
                file = place / CERTIFICATE_FILE
                certificate = load(file.read_bytes(), where=str(file), authority=authority)
            else:
                signed[name] = issue(name, now, days, authority)
                certificate = signed[name].certificate
            made.append(KeyFolder(name, place, certificate.not_valid_after_utc, not is_kept))
        if signed:
            _write(Path(os.path.realpath(folder)), authority, signed, is_new=is_new)
    except OSError as error:
        where = str(error.filename or folder)
        raise UserInputError(f"cannot be used: {error.strerror}", where=where) from None
    return JobKeys(KeyFolder("ca", ours, authority.certificate.not_valid_after_utc, is_new), tuple(made))


def _write(folder: Path, authority: "Signed", signed: Mapping[str, "Signed"], *, is_new: bool) -> None:
    """Into a folder of our own beside the place, then all of it at once; or, in an old job, host by host."""
    parent = folder.parent if is_new else folder
    parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    staging = parent / f".{folder.name}.{secrets.token_hex(4)}"
    staging.mkdir(mode=_FOLDER_MODE)
    authority_pem, authority_key = authority.pem()
    files: dict[Path, bytes] = {}
    if is_new:
        files = {Path("ca", CERTIFICATE_FILE): authority_pem, Path("ca", KEY_FILE): authority_key}
    for name, host in signed.items():
        files[Path("hosts", name, AUTHORITY_FILE)] = authority_pem
        files[Path("hosts", name, CERTIFICATE_FILE)], files[Path("hosts", name, KEY_FILE)] = host.pem()
    try:
        (staging / "hosts").mkdir(mode=_FOLDER_MODE)
        for file, content in files.items():
            (staging / file).parent.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            (staging / file).touch(mode=0o600)
            (staging / file).write_bytes(content)
        if is_new:
            staging.rename(folder)
        else:
            _move_hosts(staging, folder / "hosts", signed)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _move_hosts(staging: Path, hosts: Path, names: Iterable[str]) -> None:
    """Each host has its old folder or its new one, complete; an old one leaves with the staging folder."""
    hosts.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    for name in names:
        place, replaced = hosts / name, staging / f"replaced-{name}"
        if os.path.lexists(place):
            place.rename(replaced)
        try:
            (staging / "hosts" / name).rename(place)
        except OSError:
            if os.path.lexists(replaced):
                replaced.rename(place)
            raise
