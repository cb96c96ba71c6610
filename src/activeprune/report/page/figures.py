"""Which figures the page has for a run: plots to be looked into, and the printed figure that stands in for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from ..figures import FIGURES, Printed, caption
from ..gathering import Gathered
from ..series import over_seeds, remarks
from .along_density import accuracy, dead_neurons, size_and_operations
from .along_time import dead_neurons_in_training, learning_curves
from .arrays import Arrays
from .layers import layer_maps, layer_profiles
from .plots import Panel, embedded

Draw = Callable[[Gathered, Arrays], list[Panel]]

HEADS = {
    "accuracy": "Accuracy along density",
    "dead-neurons": "Dead neurons along density",
    "dead-neurons-in-training": "Dead neurons in training",
    "learning-curves": "Learning curves",
    "size-and-operations": "What a pruned network costs",
    "layers": "Layers of one variant",
    "layer-profiles": "Variants at one density",
}
CAPTIONS = {
    "dead-neurons-in-training": "Dynamic dead-neuron rate during training at the chosen λ, of units and of channels.",
    "learning-curves": "Training loss and validation accuracy by epoch at the chosen λ.",
    "layers": "Density and dead-neuron rates (units) of every layer of the chosen variant against λ.",
    "layer-profiles": "Density and dead-neuron rates (units) along the layers at the chosen λ.",
}
ASIDE = " Published points (hollow) stand to the right of their λ: at the same place bars would hide one another."
NUMBERS = {"accuracy": "accuracy", "dead-neurons": "dead"}  # tables that have a figure's
UNFOLDED = ("size-and-operations", "dead-neurons-in-training", "learning-curves", "layers", "layer-profiles")
ALONG_DENSITY: dict[str, Draw] = {
    "accuracy": lambda run, _: accuracy(run),
    "dead-neurons": lambda run, _: dead_neurons(run),
    "size-and-operations": lambda run, _: size_and_operations(run),
}
ALONG_TIME: dict[str, Draw] = {
    "dead-neurons-in-training": dead_neurons_in_training,
    "learning-curves": learning_curves,
}
SAFE = " =:/,;.()-'<>!?@*+$[]|"  # what a URI in an attribute may hold as it is
PLACES = re.compile(r' (?:d|x|y)="[^"]*"|translate\([^)]*\)')
NUMBER = re.compile(r"\d+\.\d{2,}")
REFERENCE, ID = re.compile(r'(href="#|url\(#)([^")]+)'), re.compile(r' id="([^"]*)"')
PATH = re.compile(r'( d=")([^"]*)')
NEEDLESS = re.compile(r" (?=[A-Za-z-]|$)|(?<=[A-Za-z]) ")  # beside a command's letter or before a sign
OF_LAYERS: dict[str, Draw] = {"layers": layer_maps, "layer-profiles": layer_profiles}


@dataclass(frozen=True)
class Drawn:
    """A figure of the page: `panels` are targets and titles, `image` is the printed figure as a data URI.

    `printed` is the caption of that; `table` the name of the table that has its numbers, if there is one; `unfolded`
    says that the page's script makes one.
    """

    name: str
    head: str
    caption: str
    panels: tuple[tuple[str, str, int], ...]
    image: Markup | None
    printed: str
    table: str | None
    unfolded: bool


def drawn(
    run: Gathered, number: int, draws: dict[str, Draw], arrays: Arrays, printed: Printed | None
) -> tuple[list[Drawn], list[dict[str, Any]]]:
    """The figures that the run has something for, and their plots as the page's script takes them."""
    figures, plots = [], []
    remark = _noted(run, draws)
    for name, draw in draws.items():
        if panels := draw(run, arrays):
            targets = [f"run-{number}-{name}-{place}" for place in range(len(panels))]
            plots += [embedded(panel, target) for panel, target in zip(panels, targets, strict=True)]
            places = tuple((t, panel.title, panel.plot.height) for t, panel in zip(targets, panels, strict=True))
            beside = ASIDE if name == "accuracy" and _has_published(panels) else ""
            own = f"{caption(name)} {remark}{beside}" if name in FIGURES else ""
            said = f"{CAPTIONS[name]} {remark}" if name in CAPTIONS else own
            image = _image(printed, name)
            figures.append(Drawn(name, HEADS[name], said, places, image, own, NUMBERS.get(name), name in UNFOLDED))
    return figures, plots


def _noted(run: Gathered, draws: dict[str, Draw]) -> str:
    text = over_seeds(run) if draws is OF_LAYERS else remarks(run)
    return f"{text[0].upper()}{text[1:]}."


def _has_published(panels: list[Panel]) -> bool:
    parts = [part for panel in panels for part in panel.plot.renderers]
    return any(tag.get("show") == "paper" for part in parts for tag in part.tags)


def _image(printed: Printed | None, name: str) -> Markup | None:
    """The printed figure as a data URI."""
    svg = None if printed is None or name not in FIGURES else printed.small_svg(name)
    return None if svg is None else data_uri(shrunk(svg.decode()))


def shrunk(svg: str) -> str:
    """With places in tenths of a point, and no spaces that nothing needs; scales and widths stay as they are.

    >>> shrunk('<path d="M 1.234567 7.000001 \\nL 2 -3 \\nz" transform="scale(0.015625)"/>')
    '<path d="M1.2 7L2-3z" transform="scale(0.015625)"/>'
    """
    tenths = PLACES.sub(lambda found: NUMBER.sub(_tenths, found[0]), re.sub(r"\s*\n\s*", " ", svg))
    return _renamed(PATH.sub(lambda found: found[1] + NEEDLESS.sub("", found[2]), tenths))


def _renamed(svg: str) -> str:
    """Ids that something refers to have short names, thousands of letters among them; the others are gone.

    >>> _renamed('<g id="figure_1"><path id="DejaVuSans-13"/><use xlink:href="#DejaVuSans-13"/></g>')
    '<g><path id="i0"/><use xlink:href="#i0"/></g>'
    """
    names = {name: f"i{place}" for place, name in enumerate(dict.fromkeys(name for _, name in REFERENCE.findall(svg)))}
    referring = REFERENCE.sub(lambda found: found[1] + names[found[2]], svg)
    return ID.sub(lambda found: f' id="{names[found[1]]}"' if found[1] in names else "", referring)


def _tenths(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def data_uri(svg: str) -> Markup:
    """For an attribute in double quotes, of which there is none in it; shorter than base64.

    >>> data_uri('<g id="a">#&amp;</g>')
    Markup("data:image/svg+xml,<g id='a'>%23%26amp;</g>")
    """
    text = svg if "'" in svg else svg.replace('"', "'")
    return Markup(f"data:image/svg+xml,{quote(text, safe=SAFE)}")
