"""Numbers as a report writes them."""

from __future__ import annotations

from math import floor, log10

from ..experiment.findings import Spread
from .statistics import Interval

MINUS = "−"
NONE = "–"  # where there is nothing to say


def percent(fraction: float) -> str:
    """λ with three digits or so.

    >>> percent(0.64), percent(0.0859)
    ('64.0 %', '8.59 %')
    """
    return f"{100 * fraction:.{1 if fraction >= 0.0995 else 2}f} %"


def per_cent(density: float) -> str:
    """In two digits.

    >>> [per_cent(d) for d in (1.0, 0.4096, 0.0859, 0.008)]
    ['100', '41', '8.6', '0.8']
    """
    number = 100 * density
    digits = max(1 - floor(log10(number)), 0) if number < 99.5 else 0
    return f"{number:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{number:.0f}"


def mean_std(spread: Spread) -> str:
    """In per cent, without a deviation where there is one seed."""
    if spread.mean is None:
        return "missing"
    return f"{100 * spread.mean:.2f}" + ("" if spread.std is None else f" ± {100 * spread.std:.2f}")


def printed(theirs: Spread | None) -> str:
    """With one digit, as the paper prints it."""
    if theirs is None or theirs.mean is None:
        return NONE
    return f"{100 * theirs.mean:.1f}" + ("" if theirs.std is None else f" ± {100 * theirs.std:.1f}")


def signed(fraction: float | None, digits: int = 2) -> str:
    """A difference in percentage points, or a share in per cent.

    >>> signed(0.012), signed(-0.004), signed(None), signed(-0.00001)
    ('+1.20', '−0.40', '–', '0.00')
    """
    if fraction is None:
        return NONE
    text = f"{100 * fraction:+.{digits}f}"
    return text[1:] if not float(text) else text.replace("-", MINUS)


def span(interval: Interval | None) -> str:
    """From … to, in percentage points."""
    return NONE if interval is None else f"{signed(interval.low)} to {signed(interval.high)}"


def probability(p: float | None) -> str:
    """A p-value.

    >>> probability(0.0312), probability(0.0002)
    ('0.031', '< 0.001')
    """
    return NONE if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours.

    >>> duration(12.3), duration(200), duration(40_000)
    ('12.3 s', '3.3 min', '11.1 h')
    """
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def counted(number: int, what: str) -> str:
    """With the word's plural.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
