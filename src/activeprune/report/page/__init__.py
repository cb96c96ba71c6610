"""A report as one page: HTML that needs nothing beside it, neither files nor the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...experiment.store.files import write_text
from ..gathering import Gathered
from .document import Live, page

__all__ = ["PAGE", "Live", "page", "write_page"]

PAGE = "report.html"


def write_page(runs: Sequence[Gathered], folder: Path, live: Live | None = None, images: bool = True) -> Path:
    """Writes report.html into a folder, all of it or nothing, and says where it is; `images` as `page` has them."""
    path = folder / PAGE
    write_text(path, page(runs, live, images))
    return path
