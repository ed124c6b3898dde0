"""The fingerprint changes with whatever changes a token's probability, and with nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recorder.errors import NotFound
from recorder.models.weights import is_whole
from recorder.registry import fingerprint
from recorder.registry.fingerprint import base_fingerprint

FILES = {
    "config.json": "{}",
    "model.safetensors": "weights",
    "tokenizer.json": "{}",
    "tokenizer_config.json": "{}",
    "chat_template.jinja": "{{ messages }}",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "hashes.json"


def test_a_copy_elsewhere_has_the_same_fingerprint(model: Path, cache: Path) -> None:
    copy = model.parent / "copy"
    copy.mkdir()
    for path in model.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert base_fingerprint(copy, "float32", cache=cache) == base_fingerprint(model, "float32", cache=cache)


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_matters_changes_it(model: Path, cache: Path, name: str) -> None:
    before = base_fingerprint(model, "float32", cache=cache)
    (model / name).write_text(FILES[name][::-1] + " ")
    assert base_fingerprint(model, "float32", cache=cache) != before


def test_a_file_more_changes_it(model: Path, cache: Path) -> None:
    before = base_fingerprint(model, "float32", cache=cache)
    (model / "chat_templates").mkdir()
    (model / "chat_templates" / "tools.jinja").write_text("{{ tools }}")
    assert base_fingerprint(model, "float32", cache=cache) != before


def test_files_that_do_not_matter_do_not_change_it(model: Path, cache: Path) -> None:
    before = base_fingerprint(model, "float32", cache=cache)
    for name in ("README.md", "generation_config.json", "training_args.bin"):
        (model / name).write_text("x")
    assert base_fingerprint(model, "float32", cache=cache) == before


def test_the_dtype_counts_by_what_it_means(model: Path, cache: Path) -> None:
    def of(dtype: str) -> str:
        return base_fingerprint(model, dtype, cache=cache)

    assert of("float32") != of("bfloat16")
    assert of("bf16") == of("bfloat16") == of("torch.bfloat16")


def test_the_context_counts_where_positions_depend_on_it(model: Path, cache: Path) -> None:
    def of(length: int | None) -> str:
        return base_fingerprint(model, "float32", length, cache=cache)

    assert of(None) == of(4096) == of(4097)
    rope = {"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096}
    (model / "config.json").write_text(json.dumps({"max_position_embeddings": 131072, **rope}))
    assert of(None) == of(100) == of(4096)
    assert of(4097) == of(131072) != of(4096)


def test_llama_4_s_scale_of_late_queries_counts(model: Path, cache: Path) -> None:
    def of(length: int | None) -> str:
        return base_fingerprint(model, "float32", length, cache=cache)

    llama = {"model_type": "llama4_text", "max_position_embeddings": 131072}
    (model / "config.json").write_text(json.dumps({"model_type": "llama4", "text_config": llama}))
    assert of(None) == of(32769) != of(32768) == of(100)
    (model / "generation_config.json").write_text(json.dumps({"attn_temperature_tuning": True}))
    assert of(None) == of(32768) == of(100)


@pytest.mark.parametrize("missing", ["folder", "weights"])
def test_what_is_no_model_is_refused(model: Path, cache: Path, missing: str) -> None:
    (model / "model.safetensors").unlink()
    with pytest.raises(NotFound, match="model folder"):
        base_fingerprint(model if missing == "weights" else model / "nothing", "float32", cache=cache)


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_model_that_is_still_being_fetched_is_not_whole(tmp_path: Path, kind: str, indexed: bool) -> None:
    stem, _, suffix = kind.partition(".")
    parts = [f"{stem}-{n:05}-of-00003.{suffix}" for n in (3, 1, 2)]
    assert not is_whole(tmp_path)
    assert not is_whole(tmp_path / "nowhere")
    if indexed:
        names = {f"layer.{n}": part for n, part in enumerate(parts)}
        (tmp_path / f"{kind}.index.json").write_text(json.dumps({"weight_map": names}))
    for part in parts:
        assert not is_whole(tmp_path)
        (tmp_path / part).write_text("weights")
    assert is_whole(tmp_path)


def test_weights_in_one_file_are_whole_once_it_is_there(model: Path) -> None:
    assert is_whole(model)
    (model / "model.safetensors").unlink()
    assert not is_whole(model)


def test_large_files_are_hashed_once_until_they_change(
    model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "CACHED_FROM_BYTES", 5)
    first = base_fingerprint(model, "float32", cache=cache)
    known = cache.read_text()
    assert str(model / "model.safetensors") in known
    assert base_fingerprint(model, "float32", cache=cache) == first
    assert cache.read_text() == known
    (model / "model.safetensors").write_text("other weights")
    assert base_fingerprint(model, "float32", cache=cache) != first


@pytest.mark.parametrize("content", ["not json", "[1]", ""])
def test_a_broken_cache_is_no_obstacle(model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    first = base_fingerprint(model, "float32", cache=cache)
    monkeypatch.setattr(fingerprint, "CACHED_FROM_BYTES", 5)
    cache.parent.mkdir()
    cache.write_text(content)
    assert base_fingerprint(model, "float32", cache=cache) == first


def test_a_cache_that_cannot_be_written_is_no_obstacle(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "CACHED_FROM_BYTES", 5)
    (model / "file").touch()
    assert base_fingerprint(model, "float32", cache=model / "file" / "hashes.json")


def test_small_models_leave_no_cache_behind(model: Path, cache: Path) -> None:
    base_fingerprint(model, "float32", cache=cache)
    assert not cache.exists()


def test_no_heavy_package_is_imported(model: Path) -> None:
    program = (
        "import sys, recorder.registry.fingerprint; assert not {'torch', 'numpy', 'sqlalchemy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
