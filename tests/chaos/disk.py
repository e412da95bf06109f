"""A small disk that can be filled: a tmpfs in a mount namespace that ends with this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
CHUNK = 64 * 1024


def own_mounts() -> bool:
    """Give this process and its children mounts of their own; return whether they may mount."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return False
    if ctypes.CDLL(None).unshare(_NEW_MOUNTS) != 0:
        return False
    return _mount("--make-rprivate", "/")


def _mount(*arguments: str) -> bool:
    done = subprocess.run(["mount", *arguments], capture_output=True, check=False)
    return done.returncode == 0


class Disk:
    """A tmpfs mounted over a folder, whose content it takes over."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        """Mount it. Raises OSError if that is not possible."""
        self.folder = folder
        kept = folder.with_name(f"{folder.name}.below")
        owner = folder.stat()
        folder.rename(kept)
        folder.mkdir()
        options = f"size={megabytes}m,uid={owner.st_uid},gid={owner.st_gid}"
        options += f",mode={owner.st_mode & 0o777:o}"
        if not _mount("-t", "tmpfs", "-o", options, "outlast-chaos", str(folder)):
            raise OSError(f"no tmpfs can be mounted on {folder}")
        subprocess.run(["cp", "-a", f"{kept}/.", str(folder)], check=True)
        shutil.rmtree(kept)

    def fill(self) -> int:
        """Fill it to the last byte; return how many were written."""
        taken = 0
        with (self.folder / "ballast").open("ab", buffering=0) as ballast:
            for size in (CHUNK * 16, CHUNK, 4096):
                with contextlib.suppress(OSError):
                    while (written := ballast.write(bytes(size))) > 0:
                        taken += written
        return taken

    def free(self) -> None:
        """Free the space."""
        (self.folder / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "--lazy", str(self.folder)], capture_output=True, check=False)
