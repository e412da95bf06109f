"""Gives the package its description: README.md, with links that lead somewhere from elsewhere.

A registry shows the description apart from the repository. Links into the tree become absolute by
the address ``Source`` in ``[project.urls]``; as long as there is none, they become their text, and
the path in the source distribution, and pictures are left out. Hatchling runs this at each build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"\[([^]\[]+)\]\((?!https?:|#)([^)\s]+)\)")
_PICTURE = re.compile(rf"!{_LINK.pattern}")


class WheelReadme(MetadataHookInterface):
    """Sets ``project.readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        source = metadata.get("urls", {}).get("Source")
        base = source and f"{source}/blob/v{metadata['version']}"
        metadata["readme"] = {"content-type": "text/markdown", "text": resolve(text, base)}


def resolve(text: str, base: str | None) -> str:
    """Return the page with absolute links below ``base``, or with none into the tree."""
    if base is not None:
        files = base.replace("/blob/", "/raw/")  # where a forge has them without a page around
        text = _PICTURE.sub(lambda link: f"![{link[1]}]({files}/{link[2]})", text)
        return _LINK.sub(lambda link: f"[{link[1]}]({base}/{link[2]})", text)
    shown = _PICTURE.sub("", text)
    named = _LINK.sub(lambda link: f"{link[1]} (`{link[2].partition('#')[0]}`)", shown)
    return f"{named}\nPaths like `docs/README.md` are those of the source distribution.\n"
