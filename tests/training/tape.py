"""What stands in for a CUDA graph where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tape(TorchDispatchMode):
    """Notes operations with their tensors; a replay does them again on just these, as a CUDA graph would.

    So a number of Python's, or a tensor that has been replaced by another since, stays what it was at the recording,
    and to ask for the value of a tensor is an error. Unlike a CUDA graph, it does what it notes, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.replays = 0
        self._noted: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], list[Any]]] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operation, noted."""
        if operation is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing\nmore lines")
        result = operation(*args, **(kwargs or {}))
        self._noted.append((operation, args, kwargs or {}, tree_leaves(result)))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        """All of them again; what is neither a view nor done in place is copied to where it was."""
        self.replays += 1
        for operation, arguments, keywords, results in self._noted:
            for old, new in zip(results, tree_leaves(operation(*arguments, **keywords)), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)
