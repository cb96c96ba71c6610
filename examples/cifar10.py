"""Train a dense ResNet-20 on CIFAR-10 with the library's own loop, and print one line an epoch.

    python examples/cifar10.py --epochs 40 --device cuda --path DIR_WITH_cifar-10-batches-py

Learning rate 0.1, a tenth at half and at three quarters of the epochs, batch 128, weight decay 1e-4, crop and flip.
Without --path the official archive is looked for in the cache folder, and fetched if it is not there.
"""

import argparse
from collections.abc import Callable

from activeprune.training import Case, Checkpoint, Epoch, Training, train


def show(epoch: Epoch, checkpoint: Callable[[], Checkpoint]) -> None:
    accuracies = f"validation {epoch.validation_accuracy:.2%}  test {epoch.test_accuracy:.2%}"
    print(f"epoch {epoch.epoch + 1:3}  lr {epoch.lr:.4f}  loss {epoch.train_loss:.3f}  {accuracies}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--path", help="folder that holds cifar-10-batches-py")
    parser.add_argument("--limit", type=int, help="at most so many images")
    parser.add_argument("--precision", default="bf16", choices=["fp32", "bf16"])
    given = parser.parse_args()
    training = Training.read(
        {
            "network": "resnet20",
            "data": {"name": "cifar10", "path": given.path, "limit": given.limit},
            "augment": "crop_flip",
            "lr": 0.1,
            "weight_decay": 1e-4,
            "drops": [f"{given.epochs // 2}ep", f"{given.epochs * 3 // 4}ep"],
            "epochs": f"{given.epochs}ep",
            "batch": 128,
            "precision": given.precision,
        }
    )
    start = training.build(num_classes=10, channels=3, seed=given.seed).state_dict()
    feed = training.feed(given.seed, given.device)
    result = train(training, Case(feed, start, after_epoch=show))
    if result.failure is not None:
        raise SystemExit(f"failed: {result.failure}")
    print(
        f"test accuracy {result.accuracy:.2%} (epoch {result.best.epoch + 1}, chosen on validation images), "
        f"{result.seconds:.0f} s, {result.images_per_second:.0f} images/s in training steps"
    )


if __name__ == "__main__":
    main()
