"""The kernels compile wherever NVRTC is, with or without a GPU."""

from __future__ import annotations

import pytest
import torch

from activeprune.training.captured import Captured
from activeprune.training.choosing import Engines
from activeprune.training.fused import compiling
from activeprune.training.fused.compiling import Source, compile_source, cubin, fused_source, nvrtc_version
from activeprune.training.unavailable import EngineUnavailable
from tests.gpu.makers import patches, training


@pytest.fixture(autouse=True)
def nvrtc(tmp_path, monkeypatch):
    monkeypatch.setenv("ACTIVEPRUNE_CACHE", str(tmp_path))
    try:
        nvrtc_version()
    except EngineUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_source_compiles(architecture):
    code = cubin(fused_source(), architecture)
    assert code[:4] == b"\x7fELF"
    assert b"backward_64_join" in code


def test_what_was_compiled_is_kept(tmp_path, monkeypatch):
    nothing = Source(b'extern "C" __global__ void nothing() {}')
    code = cubin(nothing, "sm_80")
    monkeypatch.setattr("activeprune.training.fused.compiling.compile_source", None)
    assert cubin(nothing, "sm_80") == code
    assert [file.suffix for file in (tmp_path / "kernels").iterdir()] == [".cubin"]


def test_a_mistake_is_a_line_that_says_where_it_is_and_a_note_with_the_rest():
    with pytest.raises(EngineUnavailable) as told:
        compile_source(Source(b"no CUDA at all"), "sm_90")
    assert str(told.value).startswith("the fused kernels do not compile for sm_90 (NVRTC 6: kernels.cu(1): error: ")
    assert "\n" not in str(told.value)
    assert "no CUDA at all" in told.value.__notes__[0]
    source = Source(b'#include "other.cuh"', {"other.cuh": b"\nno CUDA at all"})
    with pytest.raises(EngineUnavailable, match=r"other\.cuh\(2\): error"):
        compile_source(source, "sm_90")


def test_a_header_is_part_of_what_is_compiled():
    text = b'#include "one.cuh"\nextern "C" __global__ void kernel(int* x) { *x = NUMBER; }'
    one, other = (Source(text, {"one.cuh": b"#define NUMBER " + number}) for number in (b"1", b"2"))
    assert cubin(one, "sm_80") != cubin(other, "sm_80")


def test_what_does_not_compile_is_tried_once(monkeypatch):
    """Also where the kernels are wanted for one training after the other; then a line says why there are none."""
    compiled = []

    def refusing(source, architecture):
        compiled.append(architecture)
        raise EngineUnavailable(f"no kernels for {architecture}")

    monkeypatch.setattr(compiling, "compile_source", refusing)
    monkeypatch.setattr(compiling, "_REFUSED", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    told = []
    engines = Engines(torch.device("cuda"), tell=told.append)
    for lr in (0.1, 0.2, 0.3):
        assert engines.kind(training(precision="bf16", lr=lr), patches()) is Captured
    assert compiled == ["sm_90"]
    assert told == ["resnet20: no kernels for sm_90; it is trained the slower way"]
