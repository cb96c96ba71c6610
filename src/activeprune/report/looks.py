"""How variants are called and drawn, in figures and on the page: one table for both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Look:
    """How a variant is drawn, in colour and without; `dark` is its colour on a dark page, where that is another."""

    label: str
    colour: str
    marker: str
    line: Any  # as matplotlib names it, or offset and lengths of dashes
    dark: str = ""


LOOKS = {  # colours of Okabe and Ito
    "plain": Look("plain", "#000000", "o", "-", "#e8e6e1"),
    "plain_rewind": Look("plain, rewound", "#009E73", "s", "--", "#2fc79b"),
    "ap_lite": Look("AP-Lite", "#0072B2", "^", (0, (5, 1, 1, 1)), "#4da6e8"),
    "ap_pro": Look("AP-Pro", "#D55E00", "D", "-", "#ff8a3c"),
    "ap_lite_literal": Look("AP-Lite, literal", "#56B4E9", "X", ":"),
    "no_rewind": Look("AP-Lite, not rewound", "#CC79A7", "v", "--"),
    "solo": Look("AP-Lite, AP alone", "#E69F00", "P", (0, (3, 1, 1, 1, 1, 1))),
}
