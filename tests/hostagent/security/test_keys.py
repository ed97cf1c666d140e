"""The files of a job: who may read them, what a second call does, and that a failed one leaves nothing."""

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.security.certificates import CLOCK_TOLERANCE
from mltswitch.hostagent.security.keys import JobKeys, make_keys
from mltswitch.hostagent.security.tls import load_identity
from tests.hostagent.security.jobs import DAY, NOW


def make(folder: Path, *names: str, days: int = 30, replace: bool = False) -> JobKeys:
    return make_keys(folder, names, days=days, replace=replace, now=NOW)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_host_gets_what_its_peers_believe(tmp_path: Path) -> None:
    made = make(tmp_path / "job", "host1", "host2", "host1")
    assert made.authority.is_new
    assert [host.name for host in made.hosts] == ["host1", "host2"]
    for host in made.hosts:
        identity = load_identity(host.folder)
        assert identity.name == host.name
        assert identity.expires == host.expires == NOW + 30 * DAY
        assert (tmp_path / "job/ca/key.pem").read_bytes() not in content(host.folder).values()
    assert sorted(content(tmp_path)) == [
        "job/ca/certificate.pem",
        "job/ca/key.pem",
        *(
            f"job/hosts/{host}/{file}.pem"
            for host in ("host1", "host2")
            for file in ("ca", "certificate", "key")
        ),
    ]


def test_only_the_owner_may_look(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make(tmp_path / "job", "host1")
        make(tmp_path / "job", "host2")
        make(tmp_path / "job", "host1", replace=True)
    finally:
        os.umask(before)
    for path in (tmp_path / "job", *(tmp_path / "job").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_key_of_the_ca_is_nowhere_among_the_hosts(tmp_path: Path) -> None:
    make(tmp_path, "host1", "host2")
    keys = {name: text for name, text in content(tmp_path).items() if name.endswith("/key.pem")}
    assert len(set(keys.values())) == 3
    assert all(b"PRIVATE" not in text for name, text in content(tmp_path).items() if name not in keys)


def test_certificates_say_what_they_are_for(tmp_path: Path) -> None:
    made = make_keys(tmp_path / "job", ["host_1.rack-2"], days=3, authority_days=9, now=NOW)
    host = x509.load_pem_x509_certificate((made.hosts[0].folder / "certificate.pem").read_bytes())
    names = host.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names == x509.SubjectAlternativeName([x509.DNSName("host_1.rack-2")])
    purposes = host.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(purposes) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert not host.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert host.not_valid_before_utc == NOW - CLOCK_TOLERANCE
    assert host.not_valid_after_utc == NOW + 3 * DAY
    authority = x509.load_pem_x509_certificate((tmp_path / "job/ca/certificate.pem").read_bytes())
    assert authority.not_valid_after_utc == made.authority.expires == NOW + 9 * DAY
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert constraints == x509.BasicConstraints(ca=True, path_length=0)
    host.verify_directly_issued_by(authority)


def test_a_host_joins_later(tmp_path: Path) -> None:
    make(tmp_path, "host1")
    before = content(tmp_path)
    made = make(tmp_path, "host1", "host2", days=5)
    assert not made.authority.is_new
    assert [(host.name, host.is_new, host.expires) for host in made.hosts] == [
        ("host1", False, NOW + 30 * DAY),
        ("host2", True, NOW + 5 * DAY),
    ]
    after = content(tmp_path)
    assert {name: after[name] for name in before} == before
    assert after["hosts/host2/ca.pem"] == before["ca/certificate.pem"]


def test_nothing_is_overwritten_unless_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    make(folder, "host1", "host2")
    before = content(folder)
    assert not any(host.is_new for host in make(folder, "host1", "host2").hosts)
    assert content(folder) == before
    assert make(folder, "host1", replace=True).hosts[0].is_new
    after = content(folder)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"hosts/host1/certificate.pem", "hosts/host1/key.pem"}
    assert set(after) == set(before)
    assert {path.name for path in (*tmp_path.iterdir(), *folder.iterdir())} == {"job", "ca", "hosts"}


def test_an_empty_folder_and_a_relative_one_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job").mkdir()
    make(tmp_path / "job", "host1")
    monkeypatch.chdir(tmp_path / "job")
    assert make(Path(), "host2").hosts[0].is_new
    assert {path.name for path in Path("hosts").iterdir()} == {"host1", "host2"}
    make(tmp_path / "deep" / "below", "host1")


@pytest.mark.parametrize(
    ("names", "days", "line"),
    [
        ((), 30, "no hosts"),
        (("10.0.0.1",), 30, "host 10.0.0.1: is an address, and a peer is known by its name"),
        (("../evil",), 30, "host ../evil: is not a host name"),
        (("host1", "a..b"), 30, "host a..b: is not a host name"),
        (("*.lab",), 30, "is not a host name"),
        (("host1",), 366, "host1: 366 days are more than the 365 days for which the job's CA is still valid"),
    ],
)
def test_what_cannot_be_made(tmp_path: Path, names: tuple[str, ...], days: int, line: str) -> None:
    with pytest.raises(UserInputError, match=line):
        make(tmp_path / "job", *names, days=days)
    assert list(tmp_path.iterdir()) == []


def foreign_host(folder: Path) -> None:
    make(folder.parent / "other", "host2")
    (folder.parent / "other" / "hosts" / "host2").rename(folder / "hosts" / "host2")


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda job: (job / "ca/key.pem").write_text("x"), "job/ca: the CA's key is not its"),
        (
            lambda job: (job / "ca/certificate.pem").write_bytes(b"\xff"),
            "job/ca: is no certificate of this job's CA, in PEM",
        ),
        (
            lambda job: (job / "ca/key.pem").write_text((job / "hosts/host1/key.pem").read_text()),
            "job/ca: the CA's key is not its certificate's",
        ),
        (lambda job: (job / "ca/key.pem").chmod(0o640), r"key.pem: others than its owner .*mode 0640"),
        (lambda job: (job / "ca/key.pem").unlink(), "ca/key.pem: cannot be read: No such file"),
        (lambda job: (job / "ca").rename(job.parent / "safe"), "job: holds no CA .* Put its folder ca back"),
        (foreign_host, "host2/certificate.pem: is no certificate of this job's CA"),
        (
            lambda job: (job / "hosts/host2").write_text(""),
            "host2/certificate.pem: cannot be used: Not a directory",
        ),
    ],
)
def test_a_job_that_was_spoilt_stays_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], None], line: str
) -> None:
    folder = tmp_path / "job"
    make(folder, "host1")
    spoil(folder)
    before = content(folder)
    with pytest.raises(UserInputError, match=line):
        make(folder, "host2")
    assert content(folder) == before


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UserInputError, match="holds no CA of a job, and is not empty"):
        make(tmp_path, "host1")
    with pytest.raises(UserInputError, match="notes: cannot be used: Not a directory"):
        make(tmp_path / "notes", "host1")
    assert content(tmp_path) == {"notes": b"mine"}


@pytest.mark.parametrize("is_new", [True, False])
def test_a_full_disk_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    folder = tmp_path / "job"
    if not is_new:
        make(folder, "host1")
    before = content(tmp_path)
    written = 0
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        nonlocal written
        written += 1
        if written > 5:
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserInputError, match="job: cannot be used: No space left"):
        make(folder, "host1", "host2", "host3", replace=True)
    assert content(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ([] if is_new else ["job"])


def test_a_folder_that_does_not_move_leaves_the_old_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "host1")
    before = content(tmp_path)
    rename = Path.rename

    def refusing(source: Path, target: Path) -> Path:
        if source.parent.name == "hosts" and source.parent.parent != tmp_path:
            raise OSError(5, "Input/output error")
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(UserInputError, match="Input/output error"):
        make(tmp_path, "host1", replace=True)
    assert content(tmp_path) == before


def test_without_cryptography(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "mltswitch.hostagent.security.certificates")
    with pytest.raises(MachineError, match=r"cryptography is missing\. `pip install 'mltswitch\[agent\]'"):
        make(tmp_path / "job", "host1")
    assert list(tmp_path.iterdir()) == []
