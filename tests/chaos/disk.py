"""A small disk that can be filled: a tmpfs in a mount namespace that ends with this process."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS


def own_mounts() -> bool:
    """Give this process and its children mounts of their own; return whether they may mount."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return False
    if ctypes.CDLL(None).unshare(_NEW_MOUNTS) != 0:
        return False
    return _mount("--make-rprivate", "/")


def _mount(*arguments: str, enter: tuple[str, ...] = ()) -> bool:
    done = subprocess.run([*enter, "mount", *arguments], capture_output=True, check=False)
    return done.returncode == 0


class Disk:
    """A tmpfs mounted over a folder, whose content it takes over."""

    def __init__(self, folder: Path, megabytes: int, enter: tuple[str, ...] = ()) -> None:
        """Mount it; ``enter``: the command that runs another one among the mounts of its host.
        Raises OSError if that is not possible."""
        self.folder, self._enter = folder, enter
        kept = folder.with_name(f"{folder.name}.below")
        owner = folder.stat()
        folder.rename(kept)
        folder.mkdir()
        options = f"size={megabytes}m,uid={owner.st_uid},gid={owner.st_gid}"
        options += f",mode={owner.st_mode & 0o777:o}"
        if not _mount("-t", "tmpfs", "-o", options, "outlast-chaos", str(folder), enter=enter):
            raise OSError(f"no tmpfs can be mounted on {folder}")
        subprocess.run([*enter, "cp", "-a", f"{kept}/.", str(folder)], check=True)
        shutil.rmtree(kept)

    def fill(self) -> None:
        """Fill it to the last byte."""
        write = 'for size in 1M 64k 4k; do dd if=/dev/zero bs=$size; done >> "$0"'
        self._run("sh", "-c", write, str(self.folder / "ballast"))

    def free(self) -> None:
        """Free the space."""
        self._run("rm", "-f", str(self.folder / "ballast"))

    def close(self) -> None:
        """Unmount it."""
        self._run("umount", "--lazy", str(self.folder))

    def _run(self, *command: str) -> None:
        subprocess.run([*self._enter, *command], capture_output=True, check=False)
