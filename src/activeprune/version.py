"""The version of this package, where every part of it may look."""

__version__ = "0.1.0"
