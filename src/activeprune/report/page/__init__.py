"""A report as one page: HTML that needs nothing beside it, neither files nor the network."""

from .document import page

__all__ = ["page"]
