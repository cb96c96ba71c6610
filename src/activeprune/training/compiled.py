"""Any network on a GPU, several at once and compiled: torch's compiler makes few kernels of a network's many."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..core.randomness import torchs_own
from .captured import Captured, CapturedLane, unable
from .narrow import rewrite
from .settings import Training

WORTH_IT_FROM = 5_000  # steps; compiling takes half a minute to three, in which a shorter training is over
SHAPES = 100  # networks, batches and ways to use them that one process may compile; torch's own limit is 8


class Compiled(Captured):
    """The captured engine with the passes through its networks compiled, in training and in evaluation.

    The compiler measures nothing, so that the same network becomes the same kernels every time.
    """

    def _make_ready(self, lane: CapturedLane) -> None:
        """Compiles, while other threads wait with what they would trace or draw."""
        with torchs_own:
            try:
                lane.forward = compiled(lane.model)
                super()._make_ready(lane)
                lane.evaluate_batch()
            except Exception as error:  # a network that it cannot read, no C compiler, a torch that is too old, ...
                raise unable(f"{self.training.network.name} cannot be compiled", error) from error


def worth_compiling(training: Training, steps: int) -> bool:
    """Whether a training, of so many steps an epoch, is long, and in 16 bits, which is where compiling changes no more
    than the precision does.
    """
    return training.precision == "bf16" and training.epochs.steps(steps) >= WORTH_IT_FROM


def compiled(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The network as a function, which is compiled when it first sees batches of another size, or in another mode."""
    rewrite(model)
    fast = torch.compile(model, fullgraph=True, dynamic=False, options={"deterministic": True})

    def forward(x: Tensor) -> Tensor:
        with torch._dynamo.config.patch(recompile_limit=SHAPES):
            return fast(x)  # type: ignore[no-any-return]

    return forward
