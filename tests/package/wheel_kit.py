"""The wheel as `make dist` builds it, installed where the source tree is out of reach."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib.metadata import Distribution
from pathlib import Path

from tools.release import needed

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "outlast"
UV = [sys.executable, "-m", "uv", "--no-config", "--quiet", "--offline", "--no-cache"]


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment without what would lead Python or make elsewhere."""
    of_others = ("PYTHON", "MAKE", "MFLAGS", "VIRTUAL_ENV", "UV_", "OUTLAST_")
    kept = {name: each for name, each in os.environ.items() if not name.startswith(of_others)}
    return {**kept, **more}


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """Run a command to its end; return what it prints. Fails with all of its output."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Run `make dist`; return the sdist and the wheel."""
    installed = Path(sys.prefix) / ".dev-installed"  # this test installs nothing there
    settings = (f"VENV={sys.prefix}", f"DIST={folder}")
    run("make", "--no-print-directory", f"--old-file={installed}", "dist", *settings, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


class Installed:
    """A virtual environment with the wheel and with what its metadata asks for, no more.

    The dependencies are links to those of the tests' own environment: nothing is downloaded.
    """

    def __init__(self, folder: Path, wheel: Path, *extras: str) -> None:
        self.home = folder / "elsewhere"
        self.home.mkdir(parents=True)
        venv.create(folder / "venv", symlinks=True)
        self.bin = folder / "venv" / "bin"
        run(*UV, "pip", "install", "--no-deps", "--python", self.bin / "python", wheel, cwd=folder)
        (self.packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        (metadata,) = self.packages.glob("outlast-*.dist-info")
        for each in needed(Distribution.at(metadata), {*extras}, set()):
            _link(each, self.packages)

    def run(self, command: str, *arguments: str, **more: str) -> str:
        """Run a command of the environment in a directory of its own; return what it prints."""
        return run(self.bin / command, *arguments, cwd=self.home, **more)


def _link(one: Distribution, packages: Path) -> None:
    """Link the modules and the metadata of a distribution into another environment."""
    for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
        if not (packages / top).exists():
            (packages / top).symlink_to(Path(str(one.locate_file(top))))
