"""The files of a job: who may read them, what a second call does, and that a failed one leaves nothing."""

import os
import stat
import sys
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.control.certificates import CLOCK_TOLERANCE, Authority
from mltswitch.hostagent.control.credentials import Credentials
from mltswitch.hostagent.control.identity import certified_name, host_name_problem
from mltswitch.hostagent.control.keys import JobKeys, days_left, make_keys
from mltswitch.hostagent.control.tls import load_identity
from tests.hostagent.control.peers import DAY, NOW


def make(
    folder: Path, *names: str, days: int = 30, replace: bool = False, authority_days: int = 365
) -> JobKeys:
    return make_keys(
        folder,
        {name: [] for name in names},
        days=days,
        authority_days=authority_days,
        now=NOW,
        replace=replace,
    )


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_host_gets_what_its_peers_believe(tmp_path: Path) -> None:
    made = make(tmp_path / "job", "host1", "host2")
    assert made.authority_is_new
    assert [host.name for host in made.hosts] == ["host1", "host2"]
    for host in made.hosts:
        identity = load_identity(Credentials.in_folder(host.folder))
        assert identity.name == host.name
        assert identity.expires == host.expires == NOW + 30 * DAY
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
    made = make(tmp_path / "job", "host1", "host2")
    secret = made.authority_key.read_bytes()
    assert all(text != secret for name, text in content(tmp_path).items() if "/hosts/" in name)
    keys = [host.folder / "key.pem" for host in made.hosts]
    assert len({file.read_bytes() for file in (*keys, made.authority_key)}) == 3


def test_certificates_say_what_they_are_for(tmp_path: Path) -> None:
    addresses = [ip_address("10.0.0.7"), ip_address("fd00::7")]
    made = make_keys(tmp_path / "job", {"host_1.rack-2": addresses}, days=3, authority_days=9, now=NOW)
    host = x509.load_pem_x509_certificate((made.hosts[0].folder / "certificate.pem").read_bytes())
    names = host.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["host_1.rack-2"]
    assert names.get_values_for_type(x509.IPAddress) == addresses
    purposes = host.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(purposes) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert not host.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert host.not_valid_before_utc == NOW - CLOCK_TOLERANCE
    assert host.not_valid_after_utc == NOW + 3 * DAY
    authority = x509.load_pem_x509_certificate(made.authority_certificate.read_bytes())
    assert authority.not_valid_after_utc == made.authority_expires == NOW + 9 * DAY
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(
        ca=True, path_length=0
    )
    host.verify_directly_issued_by(authority)


def test_a_host_joins_later(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    make(folder, "host1")
    before = content(folder)
    made = make(folder, "host1", "host2", days=5)
    assert not made.authority_is_new
    assert [(host.name, host.is_new, host.expires) for host in made.hosts] == [
        ("host1", False, NOW + 30 * DAY),
        ("host2", True, NOW + 5 * DAY),
    ]
    after = content(folder)
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
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


def test_an_empty_folder_and_a_relative_one_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job").mkdir()
    make(tmp_path / "job", "host1")
    monkeypatch.chdir(tmp_path / "job")
    assert make(Path(), "host2").hosts[0].is_new
    assert {path.name for path in Path("hosts").iterdir()} == {"host1", "host2"}
    make(tmp_path / "deep" / "below", "host1")


@pytest.mark.parametrize(
    ("names", "days", "authority_days", "line"),
    [
        ((), 30, 365, "no hosts"),
        (("10.0.0.1",), 30, 365, "host 10.0.0.1: is an address, and a peer is known by its name"),
        (("../evil",), 30, 365, "host ../evil: is not a host name"),
        (("host1", "a..b"), 30, 365, "host a..b: is not a host name"),
        (("*.lab",), 30, 365, "is not a host name"),
        (("host1",), 0, 365, "0 days for a host's certificate"),
        (("host1",), 30, 4000, "4000 days for the CA"),
        (("host1",), 31, 30, "31 days would outlive their CA of 30 days"),
    ],
)
def test_what_cannot_be_made(
    tmp_path: Path, names: tuple[str, ...], days: int, authority_days: int, line: str
) -> None:
    with pytest.raises(UserInputError, match=line.replace("*", r"\*")):
        make(tmp_path / "job", *names, days=days, authority_days=authority_days)
    assert list(tmp_path.iterdir()) == []


def spoil_key(folder: Path) -> None:
    (folder / "ca" / "key.pem").write_text("nonsense")


def spoil_certificate(folder: Path) -> None:
    (folder / "ca" / "certificate.pem").write_bytes(b"\xff\xfe")


def another_key(folder: Path) -> None:
    (folder / "ca" / "key.pem").write_text((folder / "hosts" / "host1" / "key.pem").read_text())


def no_authority(folder: Path) -> None:
    for file in ("key.pem", "certificate.pem"):
        (folder / "ca" / file).write_text((folder / "hosts" / "host1" / file).read_text())


def readable_key(folder: Path) -> None:
    (folder / "ca" / "key.pem").chmod(0o640)


def readable_folder(folder: Path) -> None:
    (folder / "ca").chmod(0o755)


def without_key(folder: Path) -> None:
    (folder / "ca" / "key.pem").unlink()


def without_authority(folder: Path) -> None:
    (folder / "ca").rename(folder.parent / "safe")


def foreign_host(folder: Path) -> None:
    make(folder.parent / "other", "host2")
    (folder.parent / "other" / "hosts" / "host2").rename(folder / "hosts" / "host2")


def a_file_for_a_host(folder: Path) -> None:
    (folder / "hosts" / "host2").write_text("")


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (spoil_key, "job/ca: the CA's key is not a PEM key"),
        (spoil_certificate, "ca/certificate.pem: is not a PEM file"),
        (another_key, "job/ca: the CA's key does not belong to its certificate"),
        (no_authority, "job/ca: is not the certificate of a CA"),
        (readable_key, r"key.pem: others than its owner may use this key \(mode 0640\)"),
        (readable_folder, r"job/ca: others than its owner may enter it \(mode 0755\)\. `chmod 700"),
        (without_key, "ca/key.pem: cannot be read: No such file"),
        (without_authority, "job: this job's CA is not here. Put its folder ca back"),
        (foreign_host, "host2/certificate.pem: is not signed by this job's CA"),
        (a_file_for_a_host, "host2/certificate.pem: cannot be read: Not a directory"),
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
    with pytest.raises(UserInputError, match="is neither empty nor a job's folder of keys"):
        make(tmp_path, "host1")
    with pytest.raises(UserInputError, match="notes: cannot be written: Not a directory"):
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

    def full(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written > 5:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserInputError, match="job: cannot be written: No space left"):
        make(folder, "host1", "host2", "host3", replace=True)
    assert content(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ([] if is_new else ["job"])


def test_a_folder_that_does_not_move_leaves_the_old_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "job"
    make(folder, "host1")
    before = content(folder)
    rename = Path.rename

    def refusing(source: Path, target: Path) -> Path:
        if source.parent.name == "hosts" and "." in source.parent.parent.name:
            raise OSError(5, "Input/output error")
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(UserInputError, match="Input/output error"):
        make(folder, "host1", replace=True)
    assert content(folder) == before


def test_a_ca_that_ends_too_soon(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    make(folder, "host1", authority_days=40)
    for later, line in (
        (20, "30 days are more than the 20 days"),
        (50, "the job's CA is not valid any more"),
    ):
        with pytest.raises(UserInputError, match=f"host2: {line}"):
            make_keys(folder, {"host2": []}, days=30, authority_days=365, now=NOW + later * DAY)
    assert make_keys(folder, {"host2": []}, days=20, authority_days=365, now=NOW + 20 * DAY).hosts[0].is_new


def test_two_jobs_are_strangers(tmp_path: Path) -> None:
    first, second = Authority.create(NOW, 5), Authority.create(NOW, 5)
    host = first.sign("host1", [], NOW, 5)
    assert first.expiry_of(host.certificate, where="x") == NOW + 5 * DAY
    with pytest.raises(UserInputError, match="x: is not signed by this job's CA"):
        second.expiry_of(host.certificate, where="x")
    with pytest.raises(UserInputError, match="x: is not a certificate"):
        second.expiry_of("nonsense", where="x")


def test_without_cryptography(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MachineError, match=r"cryptography is missing\. `pip install 'mltswitch\[agent\]'"):
        make(tmp_path / "job", "host1")
    assert list(tmp_path.iterdir()) == []


def test_whole_days() -> None:
    assert days_left(NOW + timedelta(hours=36), NOW) == 1
    assert days_left(NOW - timedelta(seconds=1), NOW) == -1


@settings(max_examples=200)
@given(name=st.from_regex(r"[A-Za-z0-9_.\-]{1,70}", fullmatch=True) | st.text(max_size=10))
def test_a_name_is_what_python_and_openssl_take_for_a_host(name: str) -> None:
    if host_name_problem(name):
        return
    assert name.isascii()
    assert name.encode("idna").decode() == name
    assert all(name.split("."))
    assert os.sep not in name
    assert certified_name({"subjectAltName": (("DNS", name),)}) == name


def test_names_of_certificates() -> None:
    assert certified_name(None) is None
    assert certified_name({}) is None
    assert certified_name({"subjectAltName": (("IP Address", "10.0.0.1"),)}) is None
    assert certified_name({"subjectAltName": (("DNS", "a"), ("IP Address", "10.0.0.1"))}) == "a"
    assert certified_name({"subjectAltName": (("DNS", "a"), ("DNS", "b"))}) is None
    assert certified_name({"subjectAltName": (("DNS", "*.lab"),)}) is None
