"""Any network on a GPU, several at once: the steps of all are branches of one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ..core.calling import eval_mode
from ..core.errors import InputError, first_line
from ..core.masks import Masks
from ..core.randomness import everybodys_states, torchs_own
from ..core.recording import recorded_by
from ..data import Feed, Part, Shelf, resized, scaled, shown
from .case import Case
from .counts import BatchCounts
from .engine import Lane, Tell
from .epoch_tables import Tables
from .evaluation import Evaluation
from .member import Member, Score
from .settings import Training
from .unavailable import EngineUnavailable

WARM_UP = 3  # steps before the capture


class Captured:
    """K networks, each on a stream of its own, in one graph that is captured once and replayed for every step.

    Learning rates, masks, the epoch's order, crops and flips are device data that the graph reads, so that it serves
    whole trainings, and after `clear` the next ones of the same shape. Evaluation is a second graph, of one batch.
    """

    def __init__(self, training: Training, shelf: Shelf, device: torch.device, tell: Tell = lambda line: None) -> None:
        if device.type != "cuda":
            raise EngineUnavailable(f"a graph of many networks needs a GPU, not {device.type}")
        self.training, self.shelf, self.device, self.tell = training, shelf, device, tell
        self._lanes: list[CapturedLane] = []
        self._used = 0
        self._step_graph: torch.cuda.CUDAGraph | None = None
        self._evaluation_graph: torch.cuda.CUDAGraph | None = None
        self._may_record = True  # evaluations, as far as is known

    def clear(self) -> None:
        """Frees all lanes for other trainings."""
        self._used = 0

    def lane(self, case: Case) -> CapturedLane:
        """A network at the start of its training."""
        if self._used == len(self._lanes):
            if self._step_graph is not None:
                raise InputError(f"this engine has {len(self._lanes)} lanes, and all are taken")
            self._lanes.append(CapturedLane(self.training, self.shelf, case.feed, self.device))
        lane = self._lanes[self._used]
        lane.take_on(case)
        self._used += 1
        return lane

    def run(self, lanes: Sequence[Lane], steps: int) -> None:
        """The next steps of these lanes. Those that have left go on computing, and nobody looks."""
        if self._step_graph is None:
            self._step_graph = self._captured()
        for _ in range(steps):
            self._step_graph.replay()
        for lane in lanes:
            assert isinstance(lane, CapturedLane)
            lane.batches.add(steps)

    def score(self, lanes: Sequence[Lane]) -> list[dict[Part, Score]]:
        """How well each does on its validation images and on the test images; waits for the device.

        The first evaluation is launched. Recorded, it must give the same numbers again and change no network, because
        it is done to those in the middle of an epoch, too; else all are launched.
        """
        own = [lane for lane in lanes if isinstance(lane, CapturedLane)]
        if not own:
            return []
        graph = self._evaluation_graph
        sums = self._launched(own) if graph is None else self._replayed(graph, own)
        numbers = sums.tolist()
        if graph is None and self._may_record and self._step_graph is not None and sums.isfinite().all():
            self._record_evaluation(own, sums)
        return [lane.evaluation.scores(one) for lane, one in zip(own, numbers, strict=True)]

    def _launched(self, own: Sequence[CapturedLane]) -> Tensor:
        """Sums of all batches of these lanes."""
        self._side_by_side(CapturedLane.evaluate, own)
        return torch.stack([lane.evaluation.sums for lane in own])

    def _replayed(self, graph: torch.cuda.CUDAGraph, own: Sequence[CapturedLane]) -> Tensor:
        """The same by a graph. Those that are not asked for compute their last batch again, and nobody looks."""
        for lane in own:
            lane.evaluation.begin()
        for _ in range(own[0].evaluation.count):
            graph.replay()
        return torch.stack([lane.evaluation.sums for lane in own])

    def _record_evaluation(self, own: Sequence[CapturedLane], sums: Tensor) -> None:
        """Makes a graph that gives these sums, if there is one."""
        self._may_record = False
        evaluation = f"the evaluation of {self.training.network.name}"
        try:
            before = [(lane, [tensor.clone() for tensor in lane.state()]) for lane in self._lanes]
            graph = self._recorded(CapturedLane.evaluate_batch)
        except RuntimeError as error:  # it waits for the device, or needs more memory than there is
            self.tell(f"{evaluation} cannot be recorded ({first_line(error)}); it is launched, the slower way")
            return
        same = torch.equal(self._replayed(graph, own), sums)
        if not all(all(map(torch.equal, lane.state(), was)) for lane, was in before if lane in own):
            for lane, was in before:
                put_back(lane.state(), was)
            self.tell(f"{evaluation} changes the network, so it is launched, the slower way")
        elif not same:
            self.tell(f"{evaluation} gives other numbers when it is replayed; it is launched, the slower way")
        else:
            self._evaluation_graph = graph

    def _captured(self) -> torch.cuda.CUDAGraph:
        """Some steps to warm up, undone again, and one that is recorded."""
        with self._undone():
            self._refuse_randomness()
            here = torch.cuda.current_stream(self.device)
            for lane in self._lanes:
                lane.stream.wait_stream(here)
                with torch.cuda.stream(lane.stream):
                    with lane.batches.measured():
                        lane.one_step()
                    self._make_ready(lane)
                here.wait_stream(lane.stream)
            torch.cuda.synchronize(self.device)
            with self._explained():
                return self._recorded(CapturedLane.uncounted_step)

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """In here lanes may change; then they are as before, unless it fails."""
        changed = [tensor for lane in self._lanes for tensor in lane.changed()]
        before = [tensor.clone() for tensor in changed]
        yield
        put_back(changed, before)

    def _make_ready(self, lane: CapturedLane) -> None:
        """Steps in which libraries choose their kernels and allocate."""
        for _ in range(WARM_UP):
            lane.at.zero_()
            lane.uncounted_step()

    def _recorded(self, work: Callable[[CapturedLane], None]) -> torch.cuda.CUDAGraph:
        """What all lanes do, side by side."""
        graph = torch.cuda.CUDAGraph()
        with recorded_by(graph, self.device):
            self._side_by_side(work, self._lanes)
        return graph

    def _side_by_side(self, work: Callable[[CapturedLane], None], lanes: Sequence[CapturedLane]) -> None:
        """Each on its own stream; all of these join again, or a capture could not end."""
        here = torch.cuda.current_stream(self.device)
        begun: list[CapturedLane] = []
        try:
            for lane in lanes:
                lane.stream.wait_stream(here)
                begun.append(lane)
                with torch.cuda.stream(lane.stream):
                    work(lane)
        finally:
            for lane in begun:
                here.wait_stream(lane.stream)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What went wrong in a capture: a lack of memory, also where ending it raises more, or a step that waits."""
        try:
            yield
        except RuntimeError as error:
            raise unable(f"a step of {self.training.network.name} cannot be recorded", error) from error

    def _refuse_randomness(self) -> None:
        """What a network draws by itself would be the same in every replay: seen where a step draws from a generator
        that is everybody's.
        """
        with torchs_own:  # or another thread may put an older state back
            before = everybodys_states(self.device)
            self._lanes[0].uncounted_step()
            drew = before != everybodys_states(self.device)
        if drew:
            raise EngineUnavailable(f"{self.training.network.name} draws random numbers in training, such as dropout")


class CapturedLane(Member):
    """A network whose step reads what it needs from tables on the device, at a place that it moves on by itself."""

    def __init__(self, training: Training, shelf: Shelf, feed: Feed, device: torch.device) -> None:
        self.layout = torch.channels_last if training.precision == "bf16" else torch.contiguous_format
        model = training.build(len(feed.classes), feed.channels)
        model = model.to(memory_format=self.layout)  # type: ignore[call-overload]
        dense = Masks.dense(model)
        super().__init__(training, model, model.state_dict(), dense, device)
        try:
            self.check_output(feed.evaluation("validation"), len(feed.classes))
        except InputError:
            raise
        except Exception as error:  # it may need another memory format, or more memory
            raise unable(f"{training.network.name} cannot be evaluated in a graph", error) from error
        self.names = list(dense)
        self.shelf, self.stream = shelf, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.tables = Tables(feed, device)
        self.losses = torch.zeros(feed.steps, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.right = torch.zeros((), dtype=torch.int64, device=device)
        self.evaluation = Evaluation(feed.sizes, device)
        self.scale, self.offset = (factor.to(device) for factor in feed.factors)
        self.batches = BatchCounts(model)
        self._make_optimizer_state()

    def take_on(self, case: Case) -> None:
        """Begins another training of the same shape: everything that the graph knows keeps its place."""
        chosen: Mapping[str, Tensor] = {} if case.masks is None else case.masks
        if case.masks is not None:
            case.masks.weights_of(self.model)  # which refuses those of another network
        if foreign := chosen.keys() - set(self.names):
            raise EngineUnavailable(f"masks of {sorted(foreign)[0]}, which is not pruned by default")
        for name, mask in zip(self.names, self._masks, strict=True):
            mask.copy_(chosen[name]) if name in chosen else mask.fill_(1)
        for factor, own in zip(case.feed.factors, (self.scale, self.offset), strict=True):
            own.copy_(factor)
        self.tables.take_on(case.feed)
        self.evaluation.take_on(self.tables.rows, self.shelf)
        self.load(case.start)
        self.load_optimizer_state({})

    def prepare(self, epoch: int, rates: Tensor) -> None:
        """Puts an epoch's order, crops, flips and learning rates in place, behind the steps that are running."""
        self.tables.fill(epoch, rates)

    def begin(self) -> None:
        """Starts the epoch that was prepared."""
        self.at.zero_()
        self.right.zero_()
        self.count = self.tables.steps

    def one_step(self) -> None:
        """The step at `at`; nothing in it waits, and all that it reads and writes has a fixed place."""
        at, tables = self.at, self.tables
        rows, shift, flip = tables.order[at][0], tables.shift[at][0], tables.flip[at][0]
        pixels = shown(self.shelf.pixels[rows], self.training.augment, shift, flip)
        self.rate.copy_(tables.rates[at][0])
        loss, correct = self.step(self._input(pixels), self.shelf.labels[rows])
        self.losses.index_copy_(0, at, loss.view(1))
        self.right += correct
        at.add_(1).clamp_(max=len(tables.order) - 1)  # a lane that has left goes on and must not leave its tables

    def uncounted_step(self) -> None:
        """The same, but batch norms do not count it."""
        with self.batches.left_out():
            self.one_step()

    def end(self) -> tuple[list[float], int]:
        """The loss of every step since `begin`, and the number of right answers; waits for the device."""
        return self.losses[: self.count].tolist(), int(self.right)

    def state(self) -> list[Tensor]:
        """Weights, norm parameters and running statistics where they are."""
        return list(self.model.state_dict().values())

    def changed(self) -> list[Tensor]:
        """All that a step changes."""
        return [*self.state(), *self.optimizer_tensors().values(), self.losses, self.right, self.at, self.rate]

    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Puts momentum and the like in place; what is not given becomes 0, which is how it starts."""
        for path, value in self.optimizer_tensors().items():
            value.copy_(state[path]) if path in state else value.zero_()

    def evaluate(self) -> None:
        """All batches of validation and test images."""
        self.evaluation.begin()
        for _ in range(self.evaluation.count):
            self.evaluate_batch()

    @torch.no_grad()
    def evaluate_batch(self) -> None:
        """The one that comes next; nothing in it waits, and all that it reads and writes has a fixed place."""
        rows, labels = self.evaluation.batch()
        with eval_mode(self.model):
            self.evaluation.note(self.sums(self._input(self.shelf.pixels[rows]), labels))

    def _input(self, pixels: Tensor) -> Tensor:
        x = scaled(pixels, self.scale, self.offset)
        if self.training.resolution is not None:
            x = resized(x, self.training.resolution)
        return x.contiguous(memory_format=self.layout)

    def _make_optimizer_state(self) -> None:
        """One step with gradients of 0 makes what the optimiser keeps; then all of it is 0."""
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def put_back(tensors: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    """Gives tensors the values that they had; they keep their places, which a graph knows."""
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


def unable(what: str, error: Exception) -> EngineUnavailable:
    """What cannot be, and why. A lack of memory, also one behind the error, is raised as such: fewer may fit."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, torch.cuda.OutOfMemoryError):
        cause = cause.__context__
    if cause is not None:
        raise cause from None
    return EngineUnavailable(f"{what} ({first_line(error)})")
