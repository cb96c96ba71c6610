"""CUDA graphs: work that is launched once, recorded, and replayed from then on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .randomness import torchs_own


@contextmanager
def recorded_by(graph: torch.cuda.CUDAGraph, device: torch.device) -> Iterator[None]:
    """Records what this thread launches; others may go on, but for drawing random numbers.

    What cannot be recorded, such as waiting for the device, raises RuntimeError, and work goes on as before; torch may
    keep the memory that a recording had before it was broken off.
    """
    handled = sys.exc_info()[1]  # which is none of its own
    with torchs_own:
        try:
            with (
                torch.cuda.stream(torch.cuda.current_stream(device)),  # which is the current one afterwards in any case
                torch.cuda.graph(graph, capture_error_mode="thread_local"),
            ):
                yield
        except RuntimeError as error:
            # a capture that was broken off leaves torch's generator in the belief that it goes on; a copy has none
            generator = torch.cuda.default_generators[device.index or 0]
            generator.graphsafe_set_state(generator.clone_state())
            while isinstance(error.__context__, RuntimeError) and error.__context__ is not handled:
                error = error.__context__  # what broke it off, where ending it told of another error
            raise error
