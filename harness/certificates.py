"""Certificates for the tests of TLS, made by openssl: an authority, and those that it signed."""

from __future__ import annotations

import subprocess
from pathlib import Path

NEW = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]


class Authority:
    """Its certificate is ``ca.pem`` in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cert = folder / "ca.pem"
        self._make("ca", "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def sign(self, name: str) -> tuple[Path, Path]:
        """Return the files of a certificate for 127.0.0.1 and of its key."""
        signer = ["-CA", str(self.cert), "-CAkey", str(self.folder / "ca.key")]
        address = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        self._make(name, *signer, *address, "-addext", "basicConstraints=critical,CA:FALSE")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _make(self, name: str, *options: str) -> None:
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subprocess.run(
            ["openssl", "req", "-x509", *NEW, "-subj", f"/CN={name}", *files, *options],
            cwd=self.folder,
            check=True,
            capture_output=True,
        )
