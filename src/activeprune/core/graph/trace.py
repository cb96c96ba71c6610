"""From a model to its weight graph: `torch.export` lists the operations, and a rule for each says where neurons go."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from ..calling import Batch, eval_mode, inputs_of, size_of
from ..errors import InputError, first_line
from ..prunable import unwrapped
from ..randomness import torchs_own
from .activations import Naming, kind_of
from .operators import NEEDS_NO_NEURONS, RULE_OF, Call
from .signals import NOBODY
from .structure import Activation, Barrier, WeightGraph
from .wiring import Opaque, Value, Wiring

RETURNS_ITS_INPUT = {"dropout"}  # in eval mode, though its schema does not say so
TALKATIVE = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")  # modules of torch.export
MISFITS = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)


def trace(model: nn.Module, example_input: Batch) -> WeightGraph:
    """The weight graph of a model in eval mode; the model is not changed.

    `example_input` is one batch of any size: a tensor, a pair (input, target) or a dict of model arguments.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    >>> graph = trace(model, torch.zeros(1, 3, 4, 4))
    >>> graph.reading("0.weight"), graph.feeding("4.weight"), graph.barriers
    (frozenset({'4.weight'}), frozenset({'0.weight'}), ())
    """
    arguments, keywords = inputs_of(example_input)
    model = unwrapped(model)
    try:
        with torchs_own, eval_mode(model), _quiet():
            exported = torch.export.export(model, arguments, keywords, strict=False)
    except Exception as error:  # whatever a model does when it is called with stand-ins for tensors
        raise InputError(f"torch.export cannot trace {type(model).__name__}: {first_line(error)}") from error
    wiring = Wiring()
    inputs = _inputs(wiring, exported, _first_names(model))
    wiring.expose(_Walk(wiring, Naming(model), exported.graph_module, inputs).output)
    return replace(wiring.finished(), samples=_samples(example_input))


@contextmanager
def _quiet() -> Iterator[None]:
    """What torch.export prints of a model that it cannot trace, graphs and all, is in its error as well."""
    loggers = [logging.getLogger(name) for name in TALKATIVE]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _samples(example_input: Batch) -> int | None:
    try:
        return size_of(example_input)
    except InputError:  # numbers alone, say
        return None


def _inputs(wiring: Wiring, exported: Any, first_names: dict[str, str]) -> list[Value | None]:
    """What the graph's placeholders stand for: parameters, buffers, constants, and the model's own inputs."""
    signature = exported.graph_signature
    inputs: list[Value | None] = []
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            tensor = node.meta.get("val")
            if not isinstance(tensor, Tensor):
                inputs.append(None)
            elif node.name in signature.user_inputs:
                inputs.append(wiring.source(tuple(tensor.shape)))
            elif node.name in signature.inputs_to_parameters:
                name = signature.inputs_to_parameters[node.name]
                inputs.append(Value(tuple(tensor.shape), name=first_names.get(name, name), weight=True))
            else:
                inputs.append(Value(tuple(tensor.shape), name=signature.inputs_to_buffers.get(node.name)))
    return inputs


def _first_names(model: nn.Module) -> dict[str, str]:
    """For every name of a parameter the one that `named_parameters` knows it by."""
    firsts = {id(parameter): name for name, parameter in model.named_parameters()}
    return {name: firsts[id(p)] for name, p in model.named_parameters(remove_duplicate=False)}


class _Walk:
    """One graph of operations, from its inputs to its `output`."""

    def __init__(self, wiring: Wiring, naming: Naming, module: fx.GraphModule, inputs: Sequence[Any]) -> None:
        self.wiring, self.naming, self.module = wiring, naming, module
        self.values: dict[fx.Node, Any] = {}
        self.output: Any = None
        self._base: dict[fx.Node, fx.Node] = {}  # of a view: whose memory it is
        self._position = {node: position for position, node in enumerate(module.graph.nodes)}
        given = iter(inputs)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(given)
            elif node.op == "get_attr":
                attribute = _attribute(module, str(node.target))
                self.values[node] = Value(tuple(attribute.shape)) if isinstance(attribute, Tensor) else attribute
            elif node.op == "output":
                self.output = self._looked_up(node.args[0])
            else:
                self._follow(node)

    def _follow(self, node: fx.Node) -> None:
        """Works out what a node returns. An operator in place also changes what its first argument is from then on."""
        result = self._result(node)
        if isinstance(result, Value) and len(node.users) != 1:
            result = replace(result, alone=False)
        self.values[node] = result
        if node.args and isinstance(node.args[0], fx.Node):
            changed = node.args[0]
            if _shares_memory(node):
                self._base[node] = self._base.get(changed, changed)
            if _in_place(node):
                self.values[changed] = result
                self._lose_track_of_others(node, changed)

    def _lose_track_of_others(self, node: fx.Node, changed: fx.Node) -> None:
        """Whatever else looks at the memory that was written to is no longer what it was."""
        base = self._base.get(changed, changed)
        for other in [base, *(view for view, of in self._base.items() if of is base)]:
            later = any(self._position[user] > self._position[node] for user in other.users)
            if other not in (node, changed) and later and isinstance(self.values[other], Value):
                barrier = self._barrier(node, "it writes into memory that is also read under another shape")
                self.wiring.expose([self.values[other], self.values[changed]])
                self.values[other] = self.wiring.source(self.values[other].shape, barrier)

    def _result(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            whole, index = self._looked_up(node.args)
            return whole[index]
        arguments = self._looked_up(node.args)
        inner = [place for place, thing in enumerate(arguments) if isinstance(thing, fx.GraphModule)]
        if len(inner) == 1:  # a part of the model under no_grad or autocast; the branches of torch.cond are several
            return _Walk(self.wiring, self.naming, arguments[inner[0]], arguments[inner[0] + 1 :]).output
        for place in inner:
            self._note_hidden_activations(arguments[place])
        call = Call(_named(node, arguments, self._looked_up(node.kwargs)), _shapes(node))
        if not call.shapes:
            return None
        result = self._by_rule(node, call)
        self._note_activation(node, call.arguments, result)
        return result

    def _by_rule(self, node: fx.Node, call: Call) -> Value | list[Value]:
        """What the rule of its operator says that comes out."""
        name = _name(node)
        try:
            if name in RULE_OF and (call.neurons() or name in NEEDS_NO_NEURONS):
                return RULE_OF[name](self.wiring, call)
            if not call.neurons():
                return _one_or_several([Value(shape) for shape in call.shapes], node)
            raise Opaque("no rule for this operator")
        except (Opaque, *MISFITS) as why:
            known = isinstance(why, Opaque)
            reason = str(why) if known else f"its rule does not cover such a call ({type(why).__name__})"
            barrier = self._barrier(node, reason)
            self.wiring.expose(list(call.arguments.values()))
            return _one_or_several([self.wiring.source(shape, barrier) for shape in call.shapes], node)

    def _note_activation(self, node: fx.Node, arguments: dict[str, Any], result: Any) -> None:
        kind = kind_of(_name(node), arguments)
        made = node.meta.get("val")
        if kind is None or not isinstance(made, Tensor) or not made.is_floating_point() or not made.dim():
            return
        shape = tuple(made.shape)
        neurons = np.full([1] * len(shape), NOBODY) if result.ids is None else result.ids
        self.wiring.activations.append(Activation(self.naming.next(_where(node), kind), kind, shape, neurons))

    def _note_hidden_activations(self, branch: fx.GraphModule) -> None:
        """Those of a part of the model that may or may not run."""
        for node in branch.graph.nodes:
            if node.op == "call_function" and (shapes := _shapes(node)):
                self._note_activation(node, _named(node, node.args, node.kwargs), self.wiring.source(shapes[0]))

    def _barrier(self, node: fx.Node, why: str) -> Barrier:
        barrier = Barrier(str(node.target), _where(node), why)
        self.wiring.barriers.append(barrier)
        return barrier

    def _looked_up(self, thing: Any) -> Any:
        if isinstance(thing, fx.Node):
            return self.values[thing]
        if isinstance(thing, (list, tuple)):
            return [self._looked_up(part) for part in thing]
        if isinstance(thing, dict):
            return {name: self._looked_up(part) for name, part in thing.items()}
        return thing


def _attribute(module: nn.Module, path: str) -> Any:
    parent, _, name = path.rpartition(".")
    return getattr(module.get_submodule(parent), name)


def _named(node: fx.Node, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {**{str(place): value for place, value in enumerate(given)}, **named}
    bound = {argument.name: argument.default_value for argument in schema.arguments}
    bound.update(zip(bound, given, strict=False))  # the rest keeps its defaults
    return {**bound, **named}


def _where(node: fx.Node) -> str:
    """The module that calls an operator."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return str(stack[-1][0]) if stack else ""


def _schema_name(node: fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return str(node.target) if schema is None else schema.name.rpartition("::")[2]


def _name(node: fx.Node) -> str:
    """The operator without namespace, overload and final underscore."""
    return _schema_name(node).rstrip("_")


def _in_place(node: fx.Node) -> bool:
    return _schema_name(node).endswith("_") and hasattr(node.target, "_schema")


def _shares_memory(node: fx.Node) -> bool:
    """Whether what it returns may be its first argument seen in another way."""
    if node.target is operator.getitem or _name(node) in RETURNS_ITS_INPUT:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(returned.alias_info is not None for returned in schema.returns)


def _shapes(node: fx.Node) -> list[tuple[int, ...]]:
    made = node.meta.get("val")
    tensors = made if isinstance(made, (list, tuple)) else [made]
    return [tuple(tensor.shape) for tensor in tensors if isinstance(tensor, Tensor)]


def _one_or_several(made: list[Value], node: fx.Node) -> Value | list[Value]:
    return made if isinstance(node.meta.get("val"), (list, tuple)) else made[0]
