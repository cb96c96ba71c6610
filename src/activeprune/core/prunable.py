"""Which parameters of a model can be pruned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import UninitializedParameter

from .errors import InputError, kind_of, listed, unknown

ATTENTION_WEIGHTS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
NEVER = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.Embedding, nn.EmbeddingBag)

Patterns = str | Sequence[str] | None


def plain_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict without the prefixes of torch.compile's and data-parallel wrappers."""
    if not isinstance(state, Mapping):
        raise InputError(f"a state dict is needed, not {kind_of(state)}: a model's is model.state_dict()")
    plain = dict(state)
    for prefix in ("_orig_mod.", "module.") * 2:
        if plain and all(name.startswith(prefix) for name in plain):
            plain = {name.removeprefix(prefix): tensor for name, tensor in plain.items()}
    return plain


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module inside torch.compile's and data-parallel wrappers, which prefix every name."""
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while True:
        if isinstance(model, wrappers):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        elif isinstance(model, nn.Module):
            return model
        else:
            raise InputError(f"a model (nn.Module) is needed, not {kind_of(model)}")


def prunable(model: nn.Module, include: Patterns = None, exclude: Patterns = None) -> dict[str, nn.Parameter]:
    """The prunable weights by name, in `named_parameters` order.

    By default the weight of every convolution and linear layer, the input projections of
    `nn.MultiheadAttention` and transformers' `Conv1D`; never biases, normalisation parameters or embeddings.
    `include` and `exclude` are shell patterns (one or several) for parameter names (`layer1.*`) or layer names
    (`fc`). `include` keeps only what it matches; written out in full it may also add a matrix-shaped parameter
    of a layer that this function does not know.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    >>> list(prunable(model)), list(prunable(model, exclude="2"))
    (['0.weight', '2.weight'], ['0.weight'])
    """
    model = unwrapped(model)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    standard = set(standard_names(model))
    names = set(standard)
    if include is not None:
        names = _matching(include, parameters, standard, "include")
        added = {name for name in several(include) if name in parameters and name not in standard}
        for name in added:
            _refuse_forbidden(model, name, parameters[name])
        names |= added
    if exclude is not None:
        names -= _matching(exclude, parameters, standard, "exclude")
    if not names:
        why = "include and exclude leave none" if standard else "it has no convolution or linear layer"
        raise InputError(f"no weight of {type(model).__name__} can be pruned: {why}")
    if hidden := sorted(names - set(parameters)):
        raise InputError(
            f"{listed(hidden)}: no parameter of its own (parametrised, or pruned by torch.nn.utils.prune); "
            "make it permanent first, e.g. with torch.nn.utils.prune.remove, or exclude the layer"
        )
    chosen = {name: parameter for name, parameter in parameters.items() if name in names}
    _refuse_unusable(chosen, parameters)
    return chosen


def standard_names(model: nn.Module) -> Iterator[str]:
    """The names that `prunable` starts from, also of weights that it would then refuse."""
    for path, module in unwrapped(model).named_modules(remove_duplicate=False):
        for attribute in _prunable_attributes(module):
            if getattr(module, attribute, None) is not None:
                yield f"{path}.{attribute}" if path else attribute


def _prunable_attributes(module: nn.Module) -> tuple[str, ...]:
    if isinstance(module, (_ConvNd, nn.Linear)) or _is_transformers_conv1d(type(module)):
        return ("weight",)
    if isinstance(module, nn.MultiheadAttention):
        return ATTENTION_WEIGHTS
    return ()


def _is_transformers_conv1d(kind: type) -> bool:
    """Recognised by name, so that transformers need not be imported."""
    return any(c.__name__ == "Conv1D" and c.__module__.startswith("transformers.") for c in kind.__mro__)


def several(patterns: Patterns) -> Sequence[str]:
    """None, one or several patterns as a sequence."""
    found = () if patterns is None else (patterns,) if isinstance(patterns, str) else patterns
    if not isinstance(found, Sequence) or not all(isinstance(pattern, str) for pattern in found):
        raise InputError(f"one or several patterns for names are needed, such as 'layer1.*', not {patterns!r}")
    return found


def _matching(patterns: str | Sequence[str], parameters: Iterable[str], names: set[str], role: str) -> set[str]:
    """The names that any pattern matches; a pattern that fits no parameter at all is a mistake."""
    matched: set[str] = set()
    for pattern in several(patterns):
        everything = {*parameters, *names}
        fits = {name for name in everything if fnmatchcase(name, pattern) or fnmatchcase(_layer(name), pattern)}
        if not fits:
            raise unknown(f"layer in {role}", pattern, {_layer(name) for name in names})
        matched |= fits & names
    return matched


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _refuse_forbidden(model: nn.Module, name: str, parameter: Tensor) -> None:
    if parameter.dim() < 2 or isinstance(model.get_submodule(_layer(name)), NEVER):
        raise InputError(f"{name!r} cannot be pruned: biases, normalisation parameters and embeddings never are")


def _refuse_unusable(chosen: dict[str, nn.Parameter], parameters: dict[str, nn.Parameter]) -> None:
    for name, parameter in chosen.items():
        if isinstance(parameter, UninitializedParameter):
            raise InputError(f"{name!r} has no values yet (a lazy layer): run one batch through the model first")
        if not parameter.is_floating_point():
            raise InputError(f"{name!r} is {parameter.dtype}: only floating-point weights can be pruned")
    refuse_shared(chosen, parameters)


def refuse_shared(chosen: dict[str, nn.Parameter], parameters: dict[str, nn.Parameter]) -> None:
    """An error for a weight that has several names: pruning it under one would prune it under all."""
    owners: dict[object, list[str]] = {}
    for name, parameter in parameters.items():
        if not isinstance(parameter, UninitializedParameter):
            owners.setdefault(_identity(parameter), []).append(name)
    for name, parameter in chosen.items():
        if len(shared := owners[_identity(parameter)]) > 1:
            raise InputError(f"{name!r} is one tensor with several names ({listed(shared)}): exclude the shared weight")


def _identity(parameter: Tensor) -> object:
    """Equal for two names of one tensor, and for two parameters on the same memory."""
    if parameter.device.type == "meta" or parameter.numel() == 0:
        return id(parameter)
    return (parameter.device, parameter.data_ptr(), parameter.numel())
