"""Why an engine cannot do a training here."""

from __future__ import annotations


class EngineUnavailable(RuntimeError):
    """This machine, or this engine, cannot do that; the message says why. Another engine can."""
