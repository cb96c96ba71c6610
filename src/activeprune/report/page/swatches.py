"""How variants look on the page, in light and in dark; shapes and dashes are those of the printed figures."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from ..looks import LOOKS

MARKERS = {
    "o": "circle", "s": "square", "^": "triangle", "D": "diamond", "X": "star", "v": "inverted_triangle", "P": "plus",
}  # fmt: skip
SHAPES = {  # around (0, 0), for swatches
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "square": "M-3.6-3.6h7.2v7.2h-7.2z",
    "triangle": "M0-4.4 4.4 3.4h-8.8z",
    "inverted_triangle": "M0 4.4 4.4-3.4h-8.8z",
    "diamond": "M0-5 4 0 0 5-4 0z",
    "star": "M0-5 1.4-1.6 5-1.4 2.2 1 3.1 4.6 0 2.6-3.1 4.6-2.2 1-5-1.4-1.4-1.6z",
    "plus": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
}
NAMED_DASHES = {"-": (), "--": (4.0, 2.0), ":": (1.0, 1.5)}
LENGTH = 1.7  # pixels of a dash's unit
SCHEMES = {
    "light": {variant: look.colour for variant, look in LOOKS.items()},
    "dark": {variant: look.dark or look.colour for variant, look in LOOKS.items()},
}


def palette() -> str:
    """The colours of the variants as CSS; without scripts the system's scheme decides."""
    light, dark = (
        "".join(f"--{variant.replace('_', '-')}:{colour};" for variant, colour in of.items()) for of in SCHEMES.values()
    )
    in_the_dark = f"@media (prefers-color-scheme:dark){{:root:not(.js){{{dark}}}}}"
    return f":root{{{light}}}:root.dark{{{dark}}}{in_the_dark}\n"


def marker(variant: str) -> str:
    """As Bokeh calls it."""
    return MARKERS[LOOKS[variant].marker]


def dashes(line: Any) -> list[int]:
    """Lengths in pixels, none for a solid line.

    >>> dashes("-"), dashes((0, (5, 1, 1, 1)))
    ([], [8, 2, 2, 2])
    """
    lengths = NAMED_DASHES[line] if isinstance(line, str) else line[1]
    return [round(LENGTH * length) for length in lengths]


def swatch(variant: str) -> Markup:
    """A piece of the variant's line with its marker, in a colour that follows the scheme."""
    lengths = " ".join(map(str, dashes(LOOKS[variant].line)))
    return Markup(
        '<svg class="swatch" viewBox="-16 -6 32 12" width="32" height="12" aria-hidden="true" '
        'style="color:var(--{})"><path d="M-16 0H16" stroke="currentColor" stroke-width="1.8" '
        'stroke-dasharray="{}"/><path d="{}" fill="currentColor"/></svg>'
    ).format(variant.replace("_", "-"), lengths, SHAPES[marker(variant)])
