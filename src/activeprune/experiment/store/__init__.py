"""What was computed, kept: entries of bytes by key, what these bytes are, and folders that processes share."""

from .entry import Damaged, Entry, Missing, Problem
from .folder import FolderStore, Store

__all__ = ["Damaged", "Entry", "FolderStore", "Missing", "Problem", "Store"]
