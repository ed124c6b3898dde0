"""What is no base model: one sentence for each fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.models.refusals import refuse_context, refuse_folder, refuse_name
from recorder.models.weights import is_whole, missing_weights
from tests.recorder.models.model_folders import write_config, write_model


def shard_missing(folder: Path) -> None:
    write_model(folder, shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()


def shard_missing_without_an_index(folder: Path) -> None:
    shard_missing(folder)
    (folder / "model.safetensors.index.json").unlink()


def index_torn(folder: Path) -> None:
    write_model(folder, shards=2)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a"')


def weights_cut(folder: Path) -> None:
    file = write_model(folder) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def pointer(folder: Path) -> None:
    (write_config(folder) / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")


def gguf(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "model-q4.gguf").write_bytes(b"GGUF")


def reads_images(folder: Path) -> None:
    write_config(folder, architectures=["NoneSuchForConditionalGeneration"], vision_config={"hidden_size": 8})


def mamba(folder: Path) -> None:
    write_config(folder, architectures=["Mamba2ForCausalLM"], model_type="mamba2")


def quantised(method: str) -> Callable[[Path], object]:
    return lambda folder: write_config(folder, quantization_config={"quant_method": method, "bits": 4})


FOLDERS: dict[Callable[[Path], object], str] = {
    lambda folder: folder.mkdir(exist_ok=True): "has no config.json",
    gguf: "GGUF format",
    lambda folder: (folder / "config.json").write_text("[1]"): "no JSON object",
    lambda folder: (folder / "config.json").write_text("{"): "cannot be read",
    lambda folder: (folder / "config.json").write_text("[" * 100_000): "cannot be read",
    lambda folder: (folder / "config.json").write_text('{"a": 1}'): "names no architecture",
    write_config: "has no weights",
    reads_images: "(NoneSuchForConditionalGeneration) reads vision beside text",
    mamba: "(Mamba2ForCausalLM) has Mamba layers alone",
    quantised("awq"): "quantised by awq",
    quantised("gptq"): "quantised by gptq",
    quantised("compressed-tensors"): "quantised by compressed-tensors",
    lambda folder: write_config(folder, quantization_config={}): "has no weights",
    shard_missing: "model-00002-of-00003.safetensors",
    shard_missing_without_an_index: "model-00002-of-00003.safetensors",
    index_torn: "model.safetensors.index.json",
    weights_cut: "shorter than its header",
    pointer: "no safetensors header",
    lambda folder: (folder / "adapter_config.json").write_text("{}"): "holds an adapter",
}


@pytest.mark.parametrize(("make", "said"), FOLDERS.items(), ids=[*FOLDERS.values()])
def test_a_folder_that_is_no_base(make: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    make(tmp_path)
    refusal = refuse_folder("mine", tmp_path)
    assert refusal is not None
    assert said in refusal.found
    assert "'mine'" in refusal.found
    assert refusal.found.endswith(".")
    assert refusal.todo.endswith(".")


def test_a_whole_model_is_not_refused(tmp_path: Path) -> None:
    assert refuse_folder("mine", write_model(tmp_path / "a")) is None
    assert refuse_folder("mine", write_model(tmp_path / "b", shards=4)) is None
    assert refuse_folder("mine", write_config(tmp_path / "c"), needs_weights=False) is None
    assert is_whole(tmp_path / "b")
    assert missing_weights(tmp_path / "b") == []


def test_a_language_model_and_weights_that_the_trainer_reads_are_not_refused(tmp_path: Path) -> None:
    image = write_config(tmp_path / "a", architectures=["Gemma3ForConditionalGeneration"], vision_config={"x": 1})
    assert refuse_folder("mine", image, needs_weights=False) is None
    for method in ("fp8", "mxfp4"):
        folder = write_config(tmp_path / method, quantization_config={"quant_method": method})
        assert refuse_folder("mine", folder, needs_weights=False) is None


def test_what_a_text_part_says_of_its_weights_counts(tmp_path: Path) -> None:
    text = {"quantization_config": {"quant_method": "awq"}}
    folder = write_config(tmp_path, text_config=text)
    refusal = refuse_folder("mine", folder, needs_weights=False)
    assert refusal is not None
    assert "awq" in refusal.found


def test_gguf_beside_safetensors_is_no_fault(tmp_path: Path) -> None:
    gguf(write_model(tmp_path))
    assert refuse_folder("mine", tmp_path) is None


def test_a_name_of_a_file_is_refused(tmp_path: Path) -> None:
    gguf(tmp_path)
    for name in (str(tmp_path / "model-q4.gguf"), "some/where.GGUF", "Qwen/Qwen3-8B-GGUF"):
        refusal = refuse_name(name)
        assert refusal is not None
        assert "GGUF format" in refusal.found
    (tmp_path / "file").touch()
    assert refuse_name(str(tmp_path / "file")) is not None
    assert refuse_name("Qwen/Qwen3-8B") is None
    assert refuse_name(str(tmp_path)) is None


def test_a_context_beyond_the_models_is_refused() -> None:
    refusal = refuse_context("mine", 2048, 4096, "engine.max_model_len")
    assert refusal is not None
    assert refusal.found == "engine.max_model_len is 4096, and the model 'mine' has a context of 2048 tokens."
    for longest, tokens in ((2048, 2048), (None, 4096), (2048, None)):
        assert refuse_context("mine", longest, tokens, "engine.max_model_len") is None
