"""Makes a release in dist/ and publishes nothing: `make release`.

Checks that the tree is clean, that no released migration has changed and that the changelog has a
dated section of the version, builds the sdist
and the wheel twice and compares their bytes, writes a CycloneDX list of what the wheel brings in
(SBOM) and the checksums, checks the metadata as the registry would, runs the tests of the wheel in
fresh environments, and prints the commands with which a maintainer publishes it.

The same commit gives the same bytes: the time in all files is that of the commit
(https://reproducible-builds.org/specs/source-date-epoch/). ``--rehearse`` (``make release
REHEARSE=1``) leaves out the check of the changelog, for a try before the version has a date.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import Path as ZipPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from outlast.store.migrations import load

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SUMS = "SHA256SUMS"
RELEASED = ROOT / "tools" / "released-migrations"
RELEASED_HEAD = (
    "# SHA-256 of each released migration: it never changes. `make release` adds new ones.\n"
)


class Refused(Exception):
    """The release cannot be made; the message says what to do."""


def main(say: Callable[[str], object] = print) -> str | None:
    """Make the release; return what stands in the way."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument(
        "--rehearse", action="store_true", help="do not ask for a dated section in CHANGELOG.md"
    )
    rehearse = parser.parse_args().rehearse
    try:
        version = find_version(ROOT)
        say(f"release {version}: the tree and the changelog")
        check_clean(ROOT)
        check_migrations(RELEASED, record=not rehearse)
        if not rehearse:
            check_changelog((ROOT / "CHANGELOG.md").read_text("utf-8"), version)
        epoch = int(_run("git", "log", "-1", "--format=%ct", cwd=ROOT))
        say("release: sdist and wheel, twice")
        files = build_twice(DIST, epoch)
        say(f"release: the packages of {files[-1].name}[all]")
        sbom = DIST / f"outlast-{version}.cdx.json"
        sbom.write_text(list_packages(files[-1], epoch))
        write_sums([*files, sbom], DIST / SUMS)
        say("release: the metadata and the description")
        _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files), cwd=ROOT)
        say("release: the wheel in fresh environments, with each extra (some minutes)")
        _run(sys.executable, "-m", "pytest", "-q", "tests/package/test_wheel.py", cwd=ROOT)
    except Refused as error:
        return f"make release: {error}"
    say((DIST / SUMS).read_text().rstrip())
    say("Nothing is published. These commands publish it:")
    say(f"  git tag --sign v{version} && git push origin v{version}")
    say(f"  {Path(sys.executable).parent}/twine upload {' '.join(f'dist/{f.name}' for f in files)}")
    return None


def find_version(root: Path) -> str:
    """Return the version: the package itself is its one place."""
    text = (root / "src" / "outlast" / "__init__.py").read_text()
    return str(re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0])


def check_clean(root: Path) -> None:
    """Raise Refused unless all files are those of a commit on main."""
    branch = _run("git", "rev-parse", "--abbrev-ref", "HEAD", cwd=root).strip()
    if branch != "main":
        raise Refused(f"the branch is {branch!r}: releases are made from main")
    if changed := _run("git", "status", "--porcelain", cwd=root).strip():
        raise Refused(f"commit or remove these files first:\n{changed}")


def read_released(path: Path) -> dict[str, str]:
    """Return the checksums of the released migrations by their names; none before the first
    release."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    pairs = [line.split("  ", 1) for line in lines if not line.startswith("#")]
    return {name: checksum for checksum, name in pairs}


def check_migrations(path: Path, *, record: bool) -> None:
    """Raise Refused if a released migration has changed or is missing; also, once, if there are new
    ones and ``record`` is set: then they are added to the file, which is to be committed."""
    released = read_released(path)
    here = {
        f"{dialect} {step.number:04} {step.name}": step.checksum
        for dialect in ("postgres", "sqlite")
        for step in load(dialect)
    }
    if changed := [name for name, checksum in released.items() if here.get(name) != checksum]:
        raise Refused(
            f"these migrations were frozen when they were released, and have changed here:"
            f" {', '.join(changed)}. Take their text from the last release, and write the change as"
            " the next migration (CONTRIBUTING.md, A migration)"
        )
    if record and here.keys() - released.keys():
        lines = [f"{checksum}  {name}\n" for name, checksum in here.items()]
        path.write_text(f"{RELEASED_HEAD}{''.join(lines)}", "utf-8")
        raise Refused(f"{path.name} froze the new migrations: commit it, and run this again")


def check_changelog(text: str, version: str) -> None:
    """Raise Refused unless the first section of the changelog is this version's, with a date, or
    comes after an empty ``[Unreleased]``."""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    if sections and sections[0].strip() == "[Unreleased]":
        sections = sections[1:]
    if sections and re.match(rf"\[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}\n", sections[0]):
        return
    raise Refused(
        f"CHANGELOG.md does not begin with '## [{version}] - YYYY-MM-DD': rename '## [Unreleased]'"
    )


def build_twice(folder: Path, epoch: int) -> list[Path]:
    """Build the sdist and the wheel into a folder, and once more elsewhere. Raises Refused if the
    bytes differ."""
    files = _build(folder, epoch)
    with TemporaryDirectory() as other:
        for first, second in zip(files, _build(Path(other), epoch), strict=True):
            if first.name != second.name or first.read_bytes() != second.read_bytes():
                raise Refused(f"a second build of {first.name} has other bytes")
    return files


def _build(folder: Path, epoch: int) -> list[Path]:
    _run("make", "--no-print-directory", "dist", f"DIST={folder}", cwd=ROOT, epoch=epoch)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return [sdist, wheel]


def list_packages(wheel: Path, epoch: int) -> str:
    """Return, in the JSON of CycloneDX, the wheel and the packages that it brings in with all its
    extras, in the versions that are pinned for the tests."""
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion
    from packageurl import PackageURL

    digest = sha256(wheel.read_bytes()).hexdigest()
    with TemporaryDirectory() as folder:
        of_wheel = _unpack_metadata(wheel, Path(folder))
        found = {canonicalize_name(each.name): each for each in needed(of_wheel, {"all"}, set())}
        components = [
            Component(
                name=each.name,
                version=each.version,
                bom_ref=f"{name}=={each.version}",
                purl=PackageURL("pypi", name=name, version=each.version),
            )
            for name, each in sorted(found.items())
            if name != "outlast"
        ]
        own = Component(
            name="outlast",
            version=of_wheel.version,
            type=ComponentType.LIBRARY,
            bom_ref=f"outlast=={of_wheel.version}",
            purl=PackageURL("pypi", name="outlast", version=of_wheel.version),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        )
    bom = Bom(components=components, serial_number=uuid.uuid5(uuid.NAMESPACE_URL, digest))
    bom.metadata.component = own
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bom.register_dependency(own, components)
    written = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    return json.dumps(json.loads(written), indent=1, sort_keys=True) + "\n"


def _unpack_metadata(wheel: Path, folder: Path) -> Distribution:
    (info,) = (each for each in ZipPath(wheel).iterdir() if each.name.endswith(".dist-info"))
    (folder / info.name).mkdir()
    (folder / info.name / "METADATA").write_bytes((info / "METADATA").read_bytes())
    return PathDistribution(folder / info.name)


def needed(one: Distribution, extras: set[str], seen: set[str]) -> Iterator[Distribution]:
    """Yield what a distribution requires with these extras, and what that requires."""
    for requirement in map(Requirement, one.requires or ()):
        asked = f"{canonicalize_name(requirement.name)}{sorted(requirement.extras)}"
        marker = requirement.marker
        wanted = marker is None or any(marker.evaluate({"extra": e}) for e in ("", *extras))
        if not wanted or asked in seen:
            continue
        seen.add(asked)
        found = one if requirement.name == one.name else distribution(requirement.name)
        yield found
        yield from needed(found, requirement.extras, seen)


def write_sums(files: list[Path], path: Path) -> None:
    """Write the checksums of files in the form of ``sha256sum --check``."""
    path.write_text(
        "".join(f"{sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files)
    )


def _run(*command: str, cwd: Path, epoch: int | None = None) -> str:
    more = {} if epoch is None else {"SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Refused(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
