"""An adapter's folder is refused for whatever would make an engine serve something else, or die."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from proxy.errors import AdapterError
from proxy.versions import adapter_files
from tests.proxy.adapters import MODULE, Made, make_adapter, seal, weights

A, B = f"{MODULE}.lora_A.weight", f"{MODULE}.lora_B.weight"
BASE_SHAPES = {"model.layers.0.self_attn.q_proj.weight": (8, 16)}


def verify(made: Made, max_rank: int = 32) -> None:
    adapter_files.verify_adapter(
        made.path, manifest_sha256=made.manifest_sha256, max_rank=max_rank, base_shapes=BASE_SHAPES
    )


def refused(made: Made, code: str, words: str) -> None:
    with pytest.raises(AdapterError, match=words) as caught:
        verify(made)
    assert caught.value.code == code


def test_a_whole_folder_passes(tmp_path: Path) -> None:
    verify(make_adapter(tmp_path, "a@1"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_a_value_that_is_not_finite(tmp_path: Path, value: float, dtype: type) -> None:
    tensors: dict[str, np.ndarray[Any, Any]] = {name: tensor.astype(dtype) for name, tensor in weights().items()}
    tensors[B][3, 2] = value
    refused(make_adapter(tmp_path, "a@1", tensors=tensors), "not_finite", "lora_B")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_value_so_large_that_products_overflow(tmp_path: Path, dtype: type) -> None:
    tensors: dict[str, np.ndarray[Any, Any]] = {name: tensor.astype(dtype) for name, tensor in weights().items()}
    tensors[B][3, 2] = -65535.9
    verify(make_adapter(tmp_path, "a@1", tensors=tensors))
    tensors[B][3, 2] = -65536.0
    refused(make_adapter(tmp_path, "a@2", tensors=tensors), "not_finite", "lora_B")


def bfloat16_file(path: Path, bits: list[int]) -> None:
    """A safetensors file of A and B in bfloat16, which numpy does not know, with `bits` as A's values."""
    a, b = np.array(bits, "<u2").tobytes(), np.full(4, 0x3F80, "<u2").tobytes()
    header = json.dumps(
        {
            A: {"dtype": "BF16", "shape": [1, 4], "data_offsets": [0, 8]},
            B: {"dtype": "BF16", "shape": [4, 1], "data_offsets": [8, 16]},
        }
    ).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + a + b)


@given(st.lists(st.integers(0, 0xFFFF), min_size=4, max_size=4))
def test_bfloat16_is_taken_where_it_is_finite_and_below_65536(
    tmp_path_factory: pytest.TempPathFactory, bits: list[int]
) -> None:
    path = tmp_path_factory.mktemp("bf16") / "w.safetensors"
    bfloat16_file(path, bits)
    values = (np.array(bits, "<u4") << 16).view("<f4")
    tensor = adapter_files.read_header(path)[0]
    try:
        adapter_files._check_finite(path, tensor)
        passed = True
    except AdapterError:
        passed = False
    assert passed == bool((np.abs(values) < 2.0**16).all())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t | {B: np.ones((8, 5), np.float32)}, "rank 4 needs"),
        (lambda t: t | {A: np.ones((5, 16), np.float32), B: np.ones((8, 5), np.float32)}, "rank 4 needs"),
        (lambda t: t | {B: np.ones((9, 4), np.float32)}, r"the base's is \[8, 16\]"),
        (lambda t: t | {A: np.ones((4, 17), np.float32)}, r"the base's is \[8, 16\]"),
        (lambda t: t | {A: np.ones((4, 4, 4), np.float32)}, "rank 4 needs"),
        (lambda t: {A: t[A]}, "not part of a pair"),
        (lambda t: t | {"lm_head.weight": np.ones(3, np.float32)}, "not part of a pair"),
        (lambda t: {}, "holds no LoRA weights"),
    ],
)
def test_a_wrong_shape(
    tmp_path: Path, change: Callable[[dict[str, np.ndarray[Any, Any]]], dict[str, np.ndarray[Any, Any]]], words: str
) -> None:
    refused(make_adapter(tmp_path, "a@1", tensors=change(weights())), "shape", words)


def test_a_rank_above_the_engines(tmp_path: Path) -> None:
    made = make_adapter(tmp_path, "a@1", rank=16)
    with pytest.raises(AdapterError, match="rank 16 is not within 1 … 8"):
        verify(made, max_rank=8)


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "probe.json", "manifest.json"])
def test_a_missing_file(tmp_path: Path, name: str) -> None:
    made = make_adapter(tmp_path, "a@1")
    (made.path / name).unlink()
    refused(made, "file_missing", name)


def test_a_missing_folder(tmp_path: Path) -> None:
    refused(Made(tmp_path / "nowhere", "0"), "file_missing", "nowhere")


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "probe.json"])
def test_a_file_that_changed_after_publication(tmp_path: Path, name: str) -> None:
    made = make_adapter(tmp_path, "a@1")
    with (made.path / name).open("ab") as f:
        f.write(b" ")
    refused(made, "manifest_mismatch", name)


def test_a_manifest_that_is_not_the_published_one(tmp_path: Path) -> None:
    made = make_adapter(tmp_path, "a@1")
    refused(Made(made.path, "0" * 64), "manifest_mismatch", "not the published manifest")


def test_a_manifest_that_reaches_out_of_its_folder(tmp_path: Path) -> None:
    made = make_adapter(tmp_path, "a@1")
    manifest = json.loads((made.path / "manifest.json").read_text())
    manifest["files"]["../secret"] = "0"
    (made.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(AdapterError, match="outside of its folder"):
        adapter_files.verify_adapter(made.path, manifest_sha256=None, max_rank=32, base_shapes=None)


@pytest.mark.parametrize("keep", [0, 4, 9, 40, -1])
def test_weights_that_are_cut_short(tmp_path: Path, keep: int) -> None:
    made = make_adapter(tmp_path, "a@1")
    path = made.path / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    (made.path / "manifest.json").unlink()
    refused(seal(made.path, "a@2"), "not_safetensors", "adapter_model")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_safetensors_never_crash(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("junk") / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(AdapterError):
        adapter_files.read_header(path)


def test_base_shapes_are_read_from_the_bases_headers(tmp_path: Path) -> None:
    save_file({"x.weight": np.ones((2, 3), np.float32)}, tmp_path / "model.safetensors")
    assert adapter_files.base_shapes(tmp_path) == {"x.weight": (2, 3)}
