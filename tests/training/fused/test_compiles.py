"""The kernels compile wherever NVRTC is, with or without a GPU."""

from __future__ import annotations

import pytest

from activeprune.training.fused.compiling import Source, compile_source, cubin, fused_source, nvrtc_version
from activeprune.training.unavailable import EngineUnavailable


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


def test_a_mistake_is_told_with_its_line():
    with pytest.raises(EngineUnavailable, match=r"do not compile for sm_90[\s\S]*kernels\.cu\(1\): error"):
        compile_source(Source(b"no CUDA at all"), "sm_90")
    source = Source(b'#include "other.cuh"', {"other.cuh": b"\nno CUDA at all"})
    with pytest.raises(EngineUnavailable, match=r"other\.cuh\(2\): error"):
        compile_source(source, "sm_90")


def test_a_header_is_part_of_what_is_compiled():
    text = b'#include "one.cuh"\nextern "C" __global__ void kernel(int* x) { *x = NUMBER; }'
    one, other = (Source(text, {"one.cuh": b"#define NUMBER " + number}) for number in (b"1", b"2"))
    assert cubin(one, "sm_80") != cubin(other, "sm_80")
