"""Networks whose weight graph is worked out by hand, and its neighbours by short names."""

import torch
from torch import nn

import activeprune as ap
from tests.helpers import Net, conv

NONE: frozenset[str] = frozenset()
IMAGE = torch.randn(2, 2, 3, 3, generator=torch.Generator().manual_seed(3))
VECTOR = torch.randn(2, 4, generator=torch.Generator().manual_seed(8))


def skip_net() -> Net:
    def forward(net, x):
        x = net.a(x).relu()
        x = (net.b(x) + x).relu()
        return net.fc(x.mean((2, 3)))

    return Net(forward, a=conv(2, 4), b=conv(4, 4), fc=nn.Linear(4, 3))


def projection_net() -> Net:
    def forward(net, x):
        x = net.a(x).relu()
        x = (net.norm(net.b(x)) + net.shortcut(x)).relu()
        return net.fc(x.mean((2, 3)))

    shortcut = nn.Conv2d(4, 5, 1)
    return Net(forward, a=conv(2, 4), b=conv(4, 5), norm=nn.BatchNorm2d(5), shortcut=shortcut, fc=nn.Linear(5, 3))


def concat_net() -> Net:
    def forward(net, x):
        x = net.a(x)
        x = torch.cat([x, net.b(net.norm(x).relu())], 1)
        return net.fc(x.relu().flatten(1))

    return Net(forward, a=conv(2, 3), norm=nn.BatchNorm2d(3), b=conv(3, 2), fc=nn.Linear(5 * 9, 3))


def depthwise_net() -> Net:
    def forward(net, x):
        x = nn.functional.relu6(net.wide(x))
        x = nn.functional.relu6(net.deep(x))
        x = net.grouped(x).relu_()
        return net.fc(net.narrow(x).mean((2, 3)))

    return Net(
        forward, wide=conv(2, 6), deep=conv(6, 6, groups=6), grouped=conv(6, 4, groups=2), narrow=conv(4, 3),
        fc=nn.Linear(3, 3),
    )  # fmt: skip


def linear_net(forward, *layers: str) -> Net:
    return Net(forward, **{name: nn.Linear(4, 4) for name in layers})


def neighbours(graph: ap.WeightGraph) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    return {name.removesuffix(".weight"): (graph.feeding(name), graph.reading(name)) for name in graph.layers}


def names(*weights: str) -> frozenset[str]:
    return frozenset(weight if weight == "identity" else f"{weight}.weight" for weight in weights)
