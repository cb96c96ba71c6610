"""Lookahead scores against norms written out for each network."""

import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.core.evidence import Evidence
from activeprune.core.loss import Loss
from activeprune.core.randomness import generator
from tests.core.graph.makers import IMAGE, concat_net, depthwise_net, projection_net, skip_net
from tests.helpers import SmallNet, random_masks
from tests.replay import randomised

# Sums of squares over everything but one axis: of what feeds an output channel, of what reads an input channel.


def rows(weight: Tensor) -> Tensor:
    return weight.detach().double().square().flatten(1).sum(1)


def columns(weight: Tensor) -> Tensor:
    return weight.detach().double().square().transpose(0, 1).flatten(1).sum(1)


def squared_scale(norm: nn.BatchNorm2d) -> Tensor:
    return (norm.weight.detach().double().square()) / (norm.running_var.double() + norm.eps)


def expected(weight: Tensor, before: Tensor | None, behind: Tensor | None) -> Tensor:
    """|w| · √before · √behind, `before` by input channel and `behind` by output channel."""
    score = weight.detach().double().abs()
    trailing = [1] * (weight.dim() - 2)
    if before is not None:
        score = score * before.sqrt().view(1, -1, *trailing)
    if behind is not None:
        score = score * behind.sqrt().view(-1, 1, *trailing)
    return score


def scores_of(model: nn.Module, image: Tensor = IMAGE, **options: bool) -> dict[str, Tensor]:
    return ap.score("lookahead", model, ap.Masks.dense(model), graph=ap.trace(model, image), **options)


def assert_scores(found: dict[str, Tensor], **wanted: Tensor) -> None:
    assert {name.removesuffix(".weight") for name in found} == set(wanted)
    for name, value in wanted.items():
        torch.testing.assert_close(found[f"{name}.weight"], value.float(), rtol=1e-5, atol=0)


def test_a_chain_with_batch_norm_as_in_its_paper() -> None:
    net = randomised(SmallNet())
    found = scores_of(net, torch.randn(2, 2, 6, 6))
    one, two = squared_scale(net.bn1), squared_scale(net.bn2)
    assert_scores(
        found,
        conv1=expected(net.conv1.weight, None, one * columns(net.conv2.weight)),
        conv2=expected(net.conv2.weight, one * rows(net.conv1.weight), two * columns(net.fc.weight)),
        fc=expected(net.fc.weight, two * rows(net.conv2.weight), None),
    )


def test_a_skip_connection_counts_one() -> None:
    net = skip_net()
    a, b, fc = net.a.weight, net.b.weight, net.fc.weight
    assert_scores(
        scores_of(net),
        a=expected(a, None, columns(b) + 1),
        b=expected(b, rows(a), columns(fc)),
        fc=expected(fc, rows(b) + 1, None),
    )


def test_without_skips_only_weights_are_neighbours() -> None:
    net = skip_net()
    a, b, fc = net.a.weight, net.b.weight, net.fc.weight
    assert_scores(
        scores_of(net, skips=False),
        a=expected(a, None, columns(b)),
        b=expected(b, rows(a), columns(fc)),
        fc=expected(fc, rows(b), None),
    )


def test_branches_of_a_sum_add_their_squares_each_with_its_own_batch_norm() -> None:
    net = randomised(projection_net())
    a, b, shortcut, fc = (layer.weight for layer in (net.a, net.b, net.shortcut, net.fc))
    scale = squared_scale(net.norm)
    wanted = {
        "a": expected(a, None, columns(b) + columns(shortcut)),
        "b": expected(b, rows(a), scale * columns(fc)),
        "shortcut": expected(shortcut, rows(a), columns(fc)),
        "fc": expected(fc, scale * rows(b) + rows(shortcut), None),
    }
    assert_scores(scores_of(net), **wanted)
    assert_scores(scores_of(net, skips=False), **wanted)  # no identity path here


def test_concatenated_channels_are_read_by_all_that_follow() -> None:
    net = randomised(concat_net())
    a, b, fc = net.a.weight, net.b.weight, net.fc.weight
    scale = squared_scale(net.norm)
    by_channel = columns(fc).view(5, 9).sum(1)  # nine pixels a channel
    assert_scores(
        scores_of(net),
        a=expected(a, None, scale * columns(b) + by_channel[:3]),
        b=expected(b, scale * rows(a), by_channel[3:]),
        fc=expected(fc, torch.cat([rows(a), rows(b)]).repeat_interleave(9), None),
    )


def test_depthwise_and_grouped_convolutions() -> None:
    net = depthwise_net()
    wide, deep, grouped, narrow, fc = (layer.weight for layer in (net.wide, net.deep, net.grouped, net.narrow, net.fc))
    grouped_columns = torch.cat([columns(grouped[:2]), columns(grouped[2:])])  # inputs 0-2 go to outputs 0-1
    fed = rows(deep).view(2, 3).repeat_interleave(2, 0)  # [output, input of its group]
    assert_scores(
        scores_of(net),
        wide=expected(wide, None, rows(deep)),  # one filter reads a channel
        deep=expected(deep, None, rows(wide) * grouped_columns),
        grouped=expected(grouped, None, columns(narrow)) * fed.sqrt().view(4, 3, 1, 1),
        narrow=expected(narrow, rows(grouped), columns(fc)),
        fc=expected(fc, rows(narrow), None),
    )


def test_pruned_weights_do_not_count_as_neighbours() -> None:
    net = skip_net()
    masks = random_masks(net)
    cleared = skip_net()
    cleared.load_state_dict(net.state_dict())
    masks.apply_(cleared)
    graph = ap.trace(net, IMAGE)
    found = ap.score("lookahead", net, masks, graph=graph)
    for name, score in ap.score("lookahead", cleared, masks, graph=graph).items():
        assert torch.equal(found[name][masks[name]], score[masks[name]])


def test_a_layer_norm_scales_by_its_weight_and_the_stream_of_a_transformer_counts_one() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.norm = nn.Linear(2, 4), nn.LayerNorm(4)
            self.fc1, self.fc2, self.head = nn.Linear(4, 8), nn.Linear(8, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.embed(x)
            return self.head(x + self.fc2(nn.functional.gelu(self.fc1(self.norm(x)))))

    net = randomised(Block())
    gamma = net.norm.weight.detach().double().square()
    embed, fc1, fc2, head = (layer.weight for layer in (net.embed, net.fc1, net.fc2, net.head))
    assert_scores(
        scores_of(net, torch.randn(2, 5, 2)),
        embed=expected(embed, None, gamma * columns(fc1) + 1),
        fc1=expected(fc1, gamma * rows(embed), columns(fc2)),
        fc2=expected(fc2, rows(fc1), columns(head)),
        head=expected(head, rows(fc2) + 1, None),
    )


def test_the_graph_is_traced_from_the_batches_where_none_is_given() -> None:
    net = skip_net()
    masks = ap.Masks.dense(net)
    with_batches = ap.score("lookahead", net, masks, batches=[(IMAGE, torch.zeros(2))])
    for name, score in scores_of(net).items():
        assert torch.equal(with_batches[name], score)
    with pytest.raises(ap.InputError, match=r"pass graph=ap\.trace\(model, example_input\)"):
        ap.score("lookahead", net, masks)


def test_a_graph_of_another_model_is_refused() -> None:
    graph = ap.trace(skip_net(), IMAGE)
    with pytest.raises(ap.InputError, match=r"another model: this one has no 'a\.weight'"):
        ap.score("lookahead", SmallNet(), ap.Masks.dense(SmallNet()), graph=graph)
    wider = skip_net()
    wider.fc = nn.Linear(4, 7)
    with pytest.raises(ap.InputError, match=r"'fc\.weight' is \(3, 4\) there, \(7, 4\) here"):
        ap.score("lookahead", wider, ap.Masks.dense(wider), graph=graph)


def test_a_layer_that_is_excluded_is_still_a_neighbour() -> None:
    net = skip_net()
    graph = ap.trace(net, IMAGE)
    found = ap.score("lookahead", net, ap.Masks.dense(net, exclude=["fc"]), graph=graph)
    assert torch.equal(found["b.weight"], scores_of(net)["b.weight"])
    assert "fc.weight" not in found


def test_a_cycle_with_lookahead_prunes_the_same_fraction_of_every_layer() -> None:
    net = skip_net()
    masks = ap.Masks.dense(net)
    start = {name: tensor + 0.1 for name, tensor in net.state_dict().items()}
    pruned = ap.prune_cycle("lookahead", net, masks, 45, 0, start, graph=ap.trace(net, IMAGE))
    assert [int(mask.sum()) for mask in pruned.masks.values()] == [72 - 14, 144 - 29, 12 - 2]  # 14.2, 28.4, 2.4


def test_a_skip_connection_counts_one_whatever_made_its_source() -> None:
    """The source's own batch-norm is not between the skip connection and its reader; one on the skip path itself is."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.own = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.b, self.path = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.fc1, self.fc2 = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.own(self.a(x)).relu()
            y = self.b(x)
            return self.fc1((y + x).mean((2, 3))) + self.fc2((y + self.path(x)).mean((2, 3)))

    net = randomised(Net())
    a, b, fc1, fc2 = (layer.weight for layer in (net.a, net.b, net.fc1, net.fc2))
    own, path = squared_scale(net.own), squared_scale(net.path)
    two = torch.full((4,), 2.0, dtype=torch.float64)
    assert_scores(
        scores_of(net),
        a=expected(a, None, own * (columns(b) + 1 + path)),
        b=expected(b, own * rows(a), two),  # two sums read it as it is
        fc1=expected(fc1, two, None),
        fc2=expected(fc2, 1 + path, None),
    )


def test_a_parameter_that_neurons_are_multiplied_with_scales_them() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 4), nn.Linear(4, 3)
            self.gain = nn.Parameter(torch.tensor([1.0, -2.0, 3.0, 0.5]))

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x) * self.gain.view(1, -1))

    net = Net()
    gain = net.gain.detach().double().square()
    a, b = net.a.weight, net.b.weight
    assert_scores(
        scores_of(net, torch.randn(2, 2)),
        a=expected(a, None, gain * columns(b)),
        b=expected(b, gain * rows(a), None),
    )


def test_a_graph_must_be_one() -> None:
    with pytest.raises(ap.InputError, match=r"graph must come from ap\.trace"):
        ap.score("lookahead", skip_net(), ap.Masks.dense(skip_net()), graph=torch.zeros(1))


def test_an_iterator_of_batches_loses_none_to_the_graph() -> None:
    net = skip_net()
    batches = [(IMAGE, torch.zeros(2)), (IMAGE + 1, torch.zeros(2))]
    evidence = Evidence(net, ap.Masks.dense(net), generator(0, "method", 0), Loss(iter(batches)))
    assert evidence.graph.layers
    assert [float(x.sum()) for x, _ in evidence.batches()] == [float(x.sum()) for x, _ in batches]
