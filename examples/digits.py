"""AP in a training loop of one's own: a small network on scikit-learn's digits, pruned with and without AP.

Both runs remove 20 % of the alive weights in each of 10 cycles. Plain global magnitude picks all of them; with AP
it picks 18 %, and AP picks 2 %: negative weights that hardly moved. After each pruning the survivors go back to
where they started and are trained again:

    .venv/bin/python examples/digits.py
"""

import argparse

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import activeprune as ap

CYCLES, P, Q = 10, 0.20, 0.02
RUNS = {"global_magnitude": 0.0, "global_magnitude + AP": Q}


def load() -> tuple[TensorDataset, TensorDataset]:
    """Images and labels to train on and to test on."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.3, random_state=0, stratify=labels)
    train_x, test_x, train_y, test_y = (torch.as_tensor(part) for part in parts)
    return TensorDataset(train_x.float(), train_y), TensorDataset(test_x.float(), test_y)


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(model: nn.Module, masks: ap.Masks, data: TensorDataset, seed: int, epochs: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    shuffle = torch.Generator().manual_seed(seed)
    with masks.hold(model, optimizer):  # pruned weights stay exactly 0
        for _ in range(epochs):
            for batch in torch.randperm(len(data), generator=shuffle).split(64):
                x, y = data[batch]
                optimizer.zero_grad()
                cross_entropy(model(x), y).backward()
                optimizer.step()


def run(seed: int, q: float, epochs: int) -> list[tuple[float, float]]:
    """(density, test accuracy) of the dense network and after every cycle."""
    train_data, test_data = load()
    test_x, test_y = test_data.tensors
    model = network(seed)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    masks = ap.Masks.dense(model)
    results = []
    for cycle in range(CYCLES + 1):
        train(model, masks, train_data, seed, epochs)
        with torch.no_grad():
            results.append((masks.density, float((model(test_x).argmax(1) == test_y).double().mean())))
        if cycle < CYCLES:
            n_x, n_ap = ap.Budget(P, q).split(masks.alive)
            masks = ap.prune_cycle("global_magnitude", model, masks, n_x, n_ap, start).masks
            model.load_state_dict(start)  # rewind; the next training holds the new masks
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="how many runs to average (default 3)")
    parser.add_argument("--epochs", type=int, default=8, help="epochs of each training (default 8)")
    arguments = parser.parse_args()
    if arguments.seeds < 2 or arguments.epochs < 1:
        parser.error("at least 2 seeds (for a standard deviation) and 1 epoch")
    torch.set_num_threads(1)  # the network is too small to share

    columns = {}
    for label, q in RUNS.items():
        print(f"{label}: {arguments.seeds} seeds x {CYCLES + 1} trainings", flush=True)
        columns[label] = [run(seed, q, arguments.epochs) for seed in range(arguments.seeds)]
    table = Table(title="test accuracy on digits, %: mean ± standard deviation", title_justify="left")
    for heading in ("cycle", "weights left", *columns):
        table.add_column(heading, justify="right")
    for cycle in range(CYCLES + 1):
        cells = []
        for runs in columns.values():
            accuracies = torch.tensor([100 * run[cycle][1] for run in runs])
            cells.append(f"{accuracies.mean():.1f} ± {accuracies.std():.1f}")
        density = next(iter(columns.values()))[0][cycle][0]
        table.add_row(str(cycle), f"{100 * density:.1f} %", *cells)
    Console().print(table)
    print("A task this small says nothing about which is better; it shows both at work, to the weight.")


if __name__ == "__main__":
    main()
