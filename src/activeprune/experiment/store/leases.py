"""Who is working on what, so that two processes normally do not do the same step twice.

Nothing but time depends on it: a store is right with two results for one key, too.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from ...files import whole_file, write
from .entry import canonical, checked_key
from .files import alone, explained

LEASE_SECONDS = 60.0  # that a lease lasts; whoever works renews it
CLOCKS_APART = 10  # times as long: a lease that lasts longer was written by a clock that was wrong


@dataclass(frozen=True)
class Holder:
    """Who has a lease, and until when."""

    owner: str
    host: str
    pid: int
    expires: float  # seconds since 1970


@dataclass(frozen=True)
class Lease:
    """The right to work on a key for a while."""

    leases: Leases
    key: str

    def renew(self) -> bool:
        """Makes it last its full time from now on; False if it was lost, to somebody else or to a full disk."""
        return self.leases._renew(self.key)

    def release(self) -> None:
        """Lets others have it. Of a lease that somebody else has taken over it leaves theirs alone."""
        self.leases._release(self.key)


class Leases:
    """The leases of one owner in the store at `root`; every `Leases` object is an owner of its own. `now` is its clock.

    A lease has run out at its time, or when its process on this host is gone, which is how a killed run starts again
    without waiting. One that would last far longer than any is from before a clock was set back: it has run out, too.
    """

    def __init__(self, root: Path | str, now: Callable[[], float] = time.time) -> None:
        self.host = platform.node()
        self.owner = f"{self.host}-{os.getpid()}-{uuid4().hex[:8]}"
        self._folder = Path(root) / "leases"
        self._now = now

    def take(self, key: str) -> Lease | None:
        """The lease of a key, None while it is somebody else's. One's own is renewed."""
        checked_key(key)
        with explained("leases in", self._folder), alone(self._folder):
            held = self.holder(key)
            if held is not None and held.owner != self.owner:
                return None
            self._write(key)
            held = self._read(key)  # without locks two may have written: the last one has it
        return Lease(self, key) if held is not None and held.owner == self.owner else None

    def holder(self, key: str) -> Holder | None:
        """Who has the lease of a key now, None if nobody has."""
        held = self._read(checked_key(key))
        left = 0.0 if held is None else held.expires - self._now()
        if held is None or not 0 < left <= CLOCKS_APART * LEASE_SECONDS:
            return None
        return None if held.host == self.host and not _runs(held.pid) else held

    def _renew(self, key: str) -> bool:
        try:
            with alone(self._folder):
                held = self._read(key)
                if held is None or held.owner != self.owner:  # None: released; a late renewal must not bring it back
                    return False
                self._write(key)
        except OSError:  # not worth stopping the work for
            return False
        return True

    def _release(self, key: str) -> None:
        with suppress(OSError), alone(self._folder):  # or else it runs out by itself
            held = self._read(key)
            if held is not None and held.owner == self.owner:
                os.unlink(self._file(key))

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def _read(self, key: str) -> Holder | None:
        """What a lease says; None if there is none, or none that can be read."""
        try:
            lease = json.loads(self._file(key).read_bytes())
            held = Holder(str(lease["owner"]), str(lease["host"]), int(lease["pid"]), float(lease["expires"]))
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            return None
        return held if 0 < held.pid < 2**31 and math.isfinite(held.expires) else None

    def _write(self, key: str) -> None:
        holder = Holder(self.owner, self.host, os.getpid(), self._now() + LEASE_SECONDS)
        with whole_file(self._file(key)) as staged:
            write(staged, canonical(asdict(holder)))


def _runs(pid: int) -> bool:
    """Whether a process of this host exists; yes where that cannot be asked."""
    if os.name != "posix":  # elsewhere signal 0 is a real one
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
