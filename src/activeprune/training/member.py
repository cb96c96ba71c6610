"""One network in training: its weights, its optimiser, and a step that is a function of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, AdamW, Optimizer

from ..core.calling import eval_mode
from ..core.errors import InputError, listed
from ..core.masks import Masks
from ..data.feeds import Batch
from .result import State
from .settings import Training


@dataclass(frozen=True)
class Score:
    """How well a network does on some images: accuracy in [0, 1] and mean loss."""

    accuracy: float
    loss: float

    @classmethod
    def of(cls, loss: float, right: float, count: int) -> Score:
        """From sums over so many images."""
        return cls(right / count, loss / count)


class Member:
    """A network, its masks and its optimiser on a device.

    In `step` nothing is random, no branch depends on a value, and nothing waits for the device: learning rate and masks
    are tensors there, and what a step returns stays there.
    """

    def __init__(
        self,
        training: Training,
        model: nn.Module,
        start: Mapping[str, Tensor],
        masks: Masks | None,
        device: torch.device,
    ) -> None:
        self.training = training
        self.model = model.to(device)
        self.forward: Callable[[Tensor], Tensor] = self.model
        self.device = device
        self.rate = torch.zeros((), device=device)
        self.optimizer = _optimizer(training, self.model, self.rate)
        weights = {} if masks is None else masks.weights_of(self.model)
        self._weights = list(weights.values())
        self._masks = [torch.empty_like(weights[name]).copy_(mask) for name, mask in (masks or {}).items()]
        self.load(start)

    def step(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """One update. Returns the loss and the number of right answers, both still on the device.

        Gradients of pruned weights are 0, so that clipping does not see them, their momentum stays 0 and so do they.
        """
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.logits(x)
        loss = cross_entropy(logits, y, label_smoothing=self.training.label_smoothing)
        loss.backward()  # type: ignore[no-untyped-call]
        if pruned := [(w.grad, mask) for w, mask in zip(self._weights, self._masks, strict=True) if w.grad is not None]:
            grads, masks = zip(*pruned, strict=True)
            torch._foreach_mul_(grads, masks)
        if self.training.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip)
        self._welcome_latecomers()
        self.optimizer.step()
        return loss.detach(), (logits.detach().argmax(1) == y).sum()

    def _welcome_latecomers(self) -> None:
        """Momentum for parameters whose first gradient comes after that of others, because a layer was left out until
        now: torch's fused SGD wants it of all or of none. 0 is what they would begin with.
        """
        if not isinstance(self.optimizer, SGD) or not self.training.momentum:
            return
        state = self.optimizer.state
        moved = [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        new = [parameter for parameter in moved if "momentum_buffer" not in state[parameter]]
        if len(new) < len(moved):
            for parameter in new:
                state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    def check_output(self, batches: Iterator[Batch], classes: int) -> None:
        """Refuses a network that does not give one number a class, before any training."""
        x, _ = next(batches)
        with torch.no_grad(), eval_mode(self.model):
            output = self.model(x.to(self.device))
        if not isinstance(output, Tensor) or output.shape != (len(x), classes):
            found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            wanted = (len(x), classes)
            raise InputError(f"{self.training.network.name} gives {found} for a batch where {wanted} is needed")

    def logits(self, x: Tensor) -> Tensor:
        """The network's output in float32."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.precision == "bf16"):
            return self.forward(x).float()

    @torch.no_grad()
    def score(self, batches: Iterable[Batch]) -> Score:
        """Accuracy and loss in eval mode; waits for the device once."""
        count = 0
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        with eval_mode(self.model):
            for x, y in batches:
                count += len(y)
                total += self.sums(x, y)
        loss, right = total.tolist()
        return Score.of(loss, right, count)

    def sums(self, x: Tensor, y: Tensor) -> Tensor:
        """Loss and right answers, added up over a batch."""
        logits = self.logits(x)
        return torch.stack([cross_entropy(logits, y, reduction="sum"), (logits.argmax(1) == y).sum()])

    def is_finite(self) -> bool:
        """Whether every number of the state is finite; waits for the device once, for a few kernels in all."""
        state = self.model.state_dict().values()
        largest = torch._foreach_norm([t for t in state if t.is_floating_point() and t.numel()], torch.inf)
        return bool(torch.stack(largest).isfinite().all())

    def snapshot(self) -> Callable[[], State]:
        """Weights, norm parameters and running statistics as they are now; asked later, it brings them to the CPU."""
        now = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        return lambda: {name: tensor.cpu().contiguous() for name, tensor in now.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Puts a state in place; pruned weights become 0."""
        own = self.model.state_dict()
        wanted, given = ({name: tuple(tensor.shape) for name, tensor in s.items()} for s in (own, state))
        if wrong := sorted({name for name, _ in wanted.items() ^ given.items()}):
            raise InputError(
                f"the state is not one of this {self.training.network.name}: it differs in {listed(wrong)}"
            )
        with torch.no_grad():
            for name, tensor in state.items():
                own[name].copy_(tensor)
            for weight, mask in zip(self._weights, self._masks, strict=True):
                weight.masked_fill_(mask == 0, 0)

    def optimizer_state(self) -> State:
        """Momentum and the like by "parameter/kind", on the CPU."""
        kept = self.optimizer_tensors().items()
        return {path: value.detach().cpu().clone(memory_format=torch.contiguous_format) for path, value in kept}

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The same where it is."""
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        return {
            f"{names[parameter]}/{kind}": value
            for parameter, kinds in self.optimizer.state.items()
            for kind, value in kinds.items()
            if isinstance(value, Tensor)
        }

    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Puts momentum and the like in place."""
        parameters = dict(self.model.named_parameters())
        self.optimizer.state.clear()
        for path, value in state.items():
            name, _, kind = path.rpartition("/")
            if name not in parameters:
                raise InputError(f"the optimiser's state is not one of this {self.training.network.name}: {name!r}")
            self.optimizer.state[parameters[name]][kind] = value.to(self.device, copy=True)


def _optimizer(training: Training, model: nn.Module, rate: Tensor) -> Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError(f"nothing to train in {training.network.name}: no parameter requires a gradient")
    decay = training.weight_decay
    fused = rate.device.type in ("cpu", "cuda")  # one kernel, and the rate is read on the device
    if training.optimizer == "sgd":
        return SGD(parameters, rate, training.momentum, 0, decay, training.nesterov, fused=fused)
    kind = Adam if training.optimizer == "adam" else AdamW
    on_gpu = rate.device.type == "cuda"
    return kind(parameters, rate, training.betas, weight_decay=decay, fused=fused, capturable=on_gpu)
