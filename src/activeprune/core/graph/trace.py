"""From a model to its weight graph: `torch.export` lists the operations, and a rule for each says where neurons go."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..calling import Batch, eval_mode, inputs_of
from ..errors import InputError
from ..prunable import unwrapped
from .operators import RULES, Call, Result
from .structure import Barrier, WeightGraph
from .wiring import Opaque, Value, Wiring


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
        with eval_mode(model):
            exported = torch.export.export(model, arguments, keywords, strict=False)
    except Exception as error:  # whatever a model does when it is called with stand-ins for tensors
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"torch.export cannot trace {type(model).__name__}: {reason}") from error
    signature = exported.graph_signature
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    wiring = Wiring()
    values: dict[fx.Node, Any] = {}
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            values[node] = _placeholder(wiring, node, named, node.name in signature.user_inputs)
        elif node.op == "call_function":
            _follow(wiring, node, values)
        elif node.op == "output":
            wiring.expose(_looked_up(node.args[0], values))
    return wiring.finished()


def _placeholder(wiring: Wiring, node: fx.Node, named: dict[str, str], is_input: bool) -> Value | None:
    tensor = node.meta.get("val")
    if not isinstance(tensor, Tensor):
        return None
    shape = tuple(tensor.shape)
    return wiring.source(shape) if is_input else Value(shape, name=named.get(node.name))


def _follow(wiring: Wiring, node: fx.Node, values: dict[fx.Node, Any]) -> None:
    """Works out what a node returns. An operator in place also changes what its first argument is from then on."""
    result = _result(wiring, node, values)
    if isinstance(result, Value) and len(node.users) != 1:
        result = replace(result, alone=False)
    values[node] = result
    if _name(node)[1] and isinstance(node.args[0], fx.Node):
        values[node.args[0]] = result


def _result(wiring: Wiring, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    if node.target is operator.getitem:
        whole, index = _looked_up(node.args, values)
        return whole[index]
    name, _ = _name(node)
    call = Call(_bound(node, values), _shapes(node))
    if not call.shapes:
        return None
    try:
        if name in RULES and (call.neurons() or name in NEEDS_NO_NEURONS):
            return RULES[name](wiring, call)
        if not call.neurons():
            return _several([Value(shape) for shape in call.shapes], node)
        raise Opaque("no rule for this operator")
    except Opaque as why:
        stack = list(node.meta.get("nn_module_stack", {}).values())
        wiring.barriers.append(Barrier(str(node.target), stack[-1][0] if stack else "", str(why)))
        wiring.expose(list(call.arguments.values()))
        return _several([wiring.source(shape) for shape in call.shapes], node)


# Operators that matter also where they only see constants: a transposed parameter is still that parameter, a layer
# that reads a learned constant is still a layer.
NEEDS_NO_NEURONS = {"t", "transpose", "permute", "linear", "addmm", "conv1d", "conv2d", "conv3d", "embedding"}


def _name(node: fx.Node) -> tuple[str, bool]:
    """The operator without namespace, overload and final underscore, and whether it works in place."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return str(node.target), False
    name = schema.name.rpartition("::")[2]
    return name.rstrip("_"), name.endswith("_")


def _bound(node: fx.Node, values: dict[fx.Node, Any]) -> dict[str, Any]:
    schema = getattr(node.target, "_schema", None)
    given = _looked_up(node.args, values)
    if schema is None:
        return {**dict(enumerate(given)), **_looked_up(node.kwargs, values)}
    bound = {argument.name: argument.default_value for argument in schema.arguments}
    bound.update(zip(bound, given, strict=False))  # the rest keeps its defaults
    bound.update(_looked_up(node.kwargs, values))
    return bound


def _looked_up(thing: Any, values: dict[fx.Node, Any]) -> Any:
    if isinstance(thing, fx.Node):
        return values[thing]
    if isinstance(thing, (list, tuple)):
        return [_looked_up(part, values) for part in thing]
    if isinstance(thing, dict):
        return {name: _looked_up(part, values) for name, part in thing.items()}
    return thing


def _shapes(node: fx.Node) -> list[tuple[int, ...]]:
    made = node.meta.get("val")
    tensors = made if isinstance(made, (list, tuple)) else [made]
    return [tuple(tensor.shape) for tensor in tensors if isinstance(tensor, Tensor)]


def _several(made: list[Value], node: fx.Node) -> Result:
    return made if isinstance(node.meta.get("val"), (list, tuple)) else made[0]
