"""A report as one page: HTML that needs nothing beside it, neither files nor the network."""

from __future__ import annotations

from pathlib import Path

from ...experiment.store.files import write_text
from ..report import Report
from .document import Live, page

__all__ = ["PAGE", "Live", "page", "write_page"]

PAGE = "report.html"


def write_page(report: Report, folder: Path, live: Live | None = None, images: bool = True) -> Path:
    """Writes report.html into a folder, all of it or nothing, and says where it is; `images` as `page` has them."""
    path = folder / PAGE
    write_text(path, page(report, live, images))
    return path
