"""An adapter's folder is refused for whatever would make an engine serve something else, or die.

The probe accepts only an engine that answers as the new version, wherever the two can be told apart.
"""

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
from proxy.versions import verification
from proxy.versions.verification import (
    Probe,
    ProbeContext,
    is_distinguishable,
    judge_probe,
    logprob_distance,
    read_probe,
)
from tests.proxy import adapters
from tests.proxy.adapters import MODULE, Made, make_adapter, seal, weights

A, B = f"{MODULE}.lora_A.weight", f"{MODULE}.lora_B.weight"
BASE_SHAPES = {"model.layers.0.self_attn.q_proj.weight": (8, 16)}


def verify(made: Made, max_rank: int = 32) -> None:
    verification.verify_adapter(
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
    tensor = verification.read_header(path)[0]
    try:
        verification._check_finite(path, tensor)
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
        verification.verify_adapter(made.path, manifest_sha256=None, max_rank=32, base_shapes=None)


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
        verification.read_header(path)


def test_base_shapes_are_read_from_the_bases_headers(tmp_path: Path) -> None:
    save_file({"x.weight": np.ones((2, 3), np.float32)}, tmp_path / "model.safetensors")
    assert verification.base_shapes(tmp_path) == {"x.weight": (2, 3)}


def one(new: list[float], parent: list[float]) -> Probe:
    ids = list(range(len(new)))
    return Probe(contexts=[ProbeContext(prompt_token_ids=[1], token_ids=ids, new=new, parent=parent)])


def test_the_new_versions_own_answer_is_accepted_and_the_parents_is_not() -> None:
    probe = one([-1.0, -2.0], [-1.5, -2.5])
    assert judge_probe(probe, [[-1.0, -2.0]]).accepted
    assert not judge_probe(probe, [[-1.5, -2.5]]).accepted


def test_an_answer_between_the_two_is_not_accepted() -> None:
    assert not judge_probe(one([0.0], [-1.0]), [[-0.5]]).accepted
    assert judge_probe(one([0.0], [-1.0]), [[-0.2]]).accepted


@pytest.mark.parametrize("missing", [float("-inf"), float("nan")])
def test_an_answer_that_is_not_finite_is_not_accepted(missing: float) -> None:
    assert not judge_probe(one([-1.0, -1.0], [-9.0, -9.0]), [[-1.0, missing]]).accepted


@given(st.lists(st.tuples(st.floats(-9, 0), st.floats(-2, 2)), min_size=1, max_size=8), st.floats(0, 1))
def test_an_answer_within_the_noise_is_accepted_wherever_versions_are_told_apart(
    rows: list[tuple[float, float]], share: float
) -> None:
    probe = one([new for new, _ in rows], [new + gap for new, gap in rows])
    if is_distinguishable(probe, "bfloat16"):
        answer = [new + share * 1.5e-3 for new, _ in rows]
        assert judge_probe(probe, [answer]).accepted


def test_whether_versions_are_told_apart_depends_on_the_precision() -> None:
    small_step = one([-1.0], [-1.0003])  # what one step at lr 1e-5 moves
    assert is_distinguishable(small_step, "float32")
    assert not is_distinguishable(small_step, "bfloat16")
    assert not is_distinguishable(small_step, "a precision of the future")
    assert not is_distinguishable(one([-1.0], [-1.0]), "float32")


def test_distance_is_the_mean_over_all_named_tokens() -> None:
    assert logprob_distance([[0.0, 1.0], [4.0]], [[0.0, 0.0], [2.0]]) == pytest.approx(1.0)


def test_a_folder_without_a_probe_has_none(tmp_path: Path) -> None:
    assert read_probe(tmp_path) is None
    (tmp_path / "probe.json").write_text('{"contexts": [], "separation": 0}')
    assert read_probe(tmp_path) is None


def test_a_probe_is_read(tmp_path: Path) -> None:
    (tmp_path / "probe.json").write_text(json.dumps(adapters.probe(0.25)))
    probe = read_probe(tmp_path)
    assert probe is not None
    assert probe.separation == pytest.approx(0.25)
    assert probe.contexts[0].token_ids == [7, 9]


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        '{"contexts": 3}',
        '{"contexts": [{"prompt_token_ids": [1], "token_ids": [1, 2], "new": [0], "parent": [0]}]}',
        '{"contexts": [{"prompt_token_ids": [], "token_ids": [1], "new": [0], "parent": [0]}]}',
        '{"contexts": [{"prompt_token_ids": [1], "token_ids": [1], "new": [NaN], "parent": [0]}]}',
    ],
)
def test_a_probe_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "probe.json").write_text(text)
    with pytest.raises(AdapterError) as caught:
        read_probe(tmp_path)
    assert caught.value.code == "probe_unreadable"
