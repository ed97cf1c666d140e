"""What a release is made of, and what refuses to be released."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mltswitch.errors import UserInputError, VerificationError
from scripts.release import (
    DATA_PLANE,
    SHIPPED_EXTRAS,
    check_tree,
    check_wheel,
    locked,
    shipped_packages,
    unpack_commit,
)

ROOT = Path(__file__).parents[2]
DATAPLANE = ROOT / "mltswitch" / "hostagent" / "dataplane"
AARCH64 = "aarch64-linux-gnu-gcc"
BUILD_SECONDS = 600.0


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with one commit."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "file").write_text("as committed\n")
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def git(folder: Path, *arguments: str) -> None:
    who = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "tag.gpgsign=false",
    ]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def test_the_tagged_commit_is_released(clone: Path) -> None:
    git(clone, "tag", "v1.2.3")
    git(clone, "tag", "-a", "-m", "also annotated", "v1.2.4")
    check_tree(clone, "1.2.3")
    check_tree(clone, "1.2.4")


@pytest.mark.parametrize(
    ("tag", "text", "version", "line"),
    [
        (
            "",
            "as committed\n",
            "1.2.3",
            r"the tag of this commit is not the version's: it has none \(expected v1\.2\.3",
        ),
        (
            "v1.2.2",
            "as committed\n",
            "1.2.3",
            r"it has v1\.2\.2 \(expected v1\.2\.3, as mltswitch/version\.py says",
        ),
        ("v1.2.3", "changed\n", "1.2.3", r"1 files are not committed, file first \(expected a clean tree\)"),
        ("v1.2.3.dev0", "as committed\n", "1.2.3.dev0", r"1\.2\.3\.dev0 is a version of development"),
    ],
)
def test_any_other_tree_is_refused_in_one_line(
    clone: Path, tag: str, text: str, version: str, line: str
) -> None:
    if tag:
        git(clone, "tag", tag)
    (clone / "file").write_text(text)
    with pytest.raises(UserInputError, match=line) as raised:
        check_tree(clone, version)
    assert len(raised.value.lines()) == 1


def test_a_tag_of_an_earlier_commit_does_not_count(clone: Path) -> None:
    git(clone, "tag", "v1.2.3")
    git(clone, "commit", "-q", "--allow-empty", "-m", "two")
    with pytest.raises(UserInputError, match="it has none"):
        check_tree(clone, "1.2.3")


def test_what_is_no_clone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="expected a git clone"):
        check_tree(tmp_path, "1.2.3")


def test_a_release_holds_what_the_commit_has_and_nothing_that_git_overlooks(
    clone: Path, tmp_path: Path
) -> None:
    git(clone, "tag", "v1.2.3")
    (clone / ".git" / "info" / "exclude").write_text("*_secret.py\n*~\n")
    for name in ("local_secret.py", "file~"):
        (clone / name).write_text("of this machine alone\n")
    git(clone, "update-index", "--assume-unchanged", "file")
    (clone / "file").write_text("changed\n")
    check_tree(clone, "1.2.3")
    unpack_commit(clone, tmp_path / "tree")
    assert {each.name: each.read_text() for each in (tmp_path / "tree").iterdir()} == {
        "file": "as committed\n"
    }


def test_new_files_count_however_git_is_set(clone: Path) -> None:
    git(clone, "tag", "v1.2.3")
    git(clone, "config", "status.showUntrackedFiles", "no")
    (clone / "new.py").touch()
    with pytest.raises(UserInputError, match=r"new\.py first"):
        check_tree(clone, "1.2.3")


@pytest.mark.parametrize("has_data_plane", [False, True])
def test_a_wheel_without_the_data_plane_is_refused(has_data_plane: bool, tmp_path: Path) -> None:
    wheel = tmp_path / "mltswitch-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as opened:
        opened.writestr(DATA_PLANE if has_data_plane else "mltswitch/__init__.py", "")
    if has_data_plane:
        check_wheel(wheel, "1")
        with pytest.raises(VerificationError, match=r"another version than the tree \(expected 2\)"):
            check_wheel(wheel, "2")
        return
    with pytest.raises(VerificationError, match="no compiled data plane"):
        check_wheel(wheel, "1")


def test_the_sbom_lists_what_users_install_by_its_locked_versions() -> None:
    packages = shipped_packages(SHIPPED_EXTRAS)
    assert {"click", "numpy", "paramiko", "bcrypt", "cffi", "plotly", "llvmlite"} <= packages
    assert packages.isdisjoint({"mypy", "pytest", "ruff", "torch", "mltswitch"})
    text = locked((ROOT / "requirements.lock").read_text(encoding="utf-8"), packages)
    assert text.count("==") >= len(packages)
    assert "mypy==" not in text


def test_a_package_that_is_not_locked_is_named() -> None:
    with pytest.raises(VerificationError, match="other are not locked"):
        locked("one==1 \\\n    --hash=sha256:00\n", {"one", "other"})


@pytest.mark.parametrize("file", sorted(DATAPLANE.glob("*.c")), ids=lambda file: file.name)
def test_the_data_plane_compiles_for_aarch64_without_warnings(file: Path, tmp_path: Path) -> None:
    if file.name == "_dataplane.c":
        pytest.skip("made by cffi")
    if shutil.which(AARCH64) is None:
        pytest.skip(f"{AARCH64} is not installed: Debian's gcc-aarch64-linux-gnu has it")
    flags = ["-D_GNU_SOURCE", "-std=c11", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror"]
    output = str(tmp_path / "made.o")
    done = subprocess.run(
        [AARCH64, *flags, "-c", "-o", output, str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.release
def test_a_wheel_from_the_source_archive_works_in_an_empty_environment(tmp_path: Path) -> None:
    for package in ("build", "cffi"):
        pytest.importorskip(package)
    tree = tmp_path / "tree"
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    run("build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(tree))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    check_wheel(wheel)
    run("scripts.try_wheel", "--offline", str(wheel))


def run(module: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
