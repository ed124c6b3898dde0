"""What cannot be a base gets one sentence: the same from `hone init`, `doctor`, `up`, `plan`, and the trainer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.doctor import checkup, discovery
from recorder.base.findings import Finding
from tests.proxy.hone_command import hone
from tests.recorder.models.model_folders import write_config, write_model
from trainer.errors import UnsupportedModel
from trainer.policy.base_model import resolve_base

pytestmark = pytest.mark.usefixtures("bare")


@pytest.fixture(autouse=True)
def nothing_runs_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(discovery.discover, "__defaults__", ({}, ()))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def doctor_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hone doctor` starts no program: the checks in other programs take ten CPU seconds, whatever the base."""

    async def no_findings(*_: Any, **__: Any) -> list[Finding]:
        return []

    monkeypatch.setattr(checkup, "run_check", no_findings)
    monkeypatch.setattr(checkup, "probe_python", no_findings)


def no_config(folder: Path) -> Path:
    folder.mkdir()
    return folder


def gguf_file(folder: Path) -> Path:
    folder.mkdir()
    (folder / "model-q4.gguf").write_bytes(b"GGUF")
    return folder / "model-q4.gguf"


def gguf_folder(folder: Path) -> Path:
    return gguf_file(folder).parent


def shard_missing(folder: Path) -> Path:
    write_model(folder, shards=3)
    (folder / "model-00003-of-00003.safetensors").unlink()
    return folder


def adapter(folder: Path) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    return folder


def no_weights(folder: Path) -> Path:
    return write_config(folder)


def unknown_family(folder: Path) -> Path:
    write_model(folder)
    return write_config(folder, model_type="frob", architectures=["FrobForCausalLM"])


def reads_images(folder: Path) -> Path:
    write_model(folder)
    return write_config(folder, architectures=["FrobForConditionalGeneration"], vision_config={"hidden_size": 8})


def mamba(folder: Path) -> Path:
    write_model(folder)
    return write_config(folder, architectures=["MambaForCausalLM"], model_type="mamba")


def quantised(folder: Path) -> Path:
    write_model(folder)
    return write_config(folder, quantization_config={"quant_method": "awq", "bits": 4})


BAD: dict[str, Callable[[Path], Path]] = {
    "has no config.json": no_config,
    "is in the GGUF format": gguf_file,
    "GGUF": gguf_folder,
    "lacks a part of its weights: model-00003-of-00003.safetensors": shard_missing,
    "holds an adapter": adapter,
    "has no weights": no_weights,
    "(FrobForConditionalGeneration) reads vision beside text": reads_images,
    "(MambaForCausalLM) has Mamba layers alone": mamba,
    "has weights quantised by awq": quantised,
    "is of the family 'frob'": unknown_family,
}


def sentence(base: Path, text: str) -> str:
    """The one sentence about a base in an output, without line breaks."""
    found = re.search(rf"the base '{re.escape(str(base))}' [^\n]*?\.(?=\s|$)", text)
    assert found is not None, text
    return found[0]


@pytest.mark.slow
def test_all_checks_of_doctor_together_have_one_sentence_about_the_base(tmp_path: Path) -> None:
    base = no_config(tmp_path / "mine")
    (tmp_path / "hone.toml").write_text(f"[aliases.agent]\n[engine]\nbase = {json.dumps(str(base))}\n")
    code, out, _ = hone("doctor", "--offline", "--json")
    assert code == 1
    findings = json.loads(out)
    assert checkup.TARGET_CHECK in {one["check"] for one in findings}  # a program said something too
    [finding] = [one for one in findings if one["check"] in ("base", "model") and one["verdict"] == "wrong"]
    assert "has no config.json" in sentence(base, finding["found"])


@pytest.mark.usefixtures("doctor_stays_here")
@pytest.mark.parametrize(("said", "make"), BAD.items(), ids=[make.__name__ for make in BAD.values()])
def test_each_fault_has_one_sentence(said: str, make: Callable[[Path], Path], tmp_path: Path) -> None:
    base = make(tmp_path / "mine")
    code, out, err = hone("init", "--base", str(base))
    assert code == 2
    assert "Traceback" not in out + err
    first = sentence(base, err)
    assert said in first
    assert not (tmp_path / "hone.toml").exists()

    (tmp_path / "hone.toml").write_text(f"[aliases.agent]\n[engine]\nbase = {json.dumps(str(base))}\n")
    code, out, _ = hone("doctor", "--offline", "--json")
    assert code == 1
    [finding] = [one for one in json.loads(out) if one["check"] in ("base", "model") and one["verdict"] == "wrong"]
    assert finding["found"].startswith(first)
    assert finding["stops"]

    code, out, err = hone("up")
    assert code != 0
    assert sentence(base, out + err) == first

    if make is not no_weights:  # a plan needs config.json alone
        code, _, err = hone("plan", "--gpu", "24")
        assert code != 0
        assert sentence(base, err) == first

    if make is not unknown_family:  # the trainer asks transformers
        with pytest.raises(UnsupportedModel) as told:
            resolve_base(str(base))
        assert sentence(base, str(told.value)) == first


@pytest.mark.usefixtures("doctor_stays_here")
def test_a_path_that_is_not_there_has_one_sentence_too(tmp_path: Path) -> None:
    base = tmp_path / "gone"
    told = f"the folder {base} does not exist."
    code, _, err = hone("init", "--base", str(base))
    assert code == 2
    assert told in err
    (tmp_path / "hone.toml").write_text(f"[aliases.agent]\n[engine]\nbase = {json.dumps(str(base))}\n")
    code, out, _ = hone("doctor", "--offline", "--json")
    assert told in [one["found"] for one in json.loads(out)]
    code, out, err = hone("up")
    assert code != 0
    assert told in out + err
    code, _, err = hone("plan", "--gpu", "24")
    assert code != 0
    assert told in err
    with pytest.raises(UnsupportedModel, match=re.escape(told)):
        resolve_base(str(base))


@pytest.mark.usefixtures("doctor_stays_here")
def test_a_context_beyond_the_models_is_the_same_from_doctor_and_up(tmp_path: Path) -> None:
    base = write_model(tmp_path / "mine")
    (tmp_path / "hone.toml").write_text(
        f"[aliases.agent]\n[engine]\nbase = {json.dumps(str(base))}\nmax_model_len = 4096\n"
    )
    told = f"engine.max_model_len is 4096, and the model '{base}' has a context of 2048 tokens."
    code, out, _ = hone("doctor", "--offline", "--json")
    assert code == 1
    assert told in [one["found"] for one in json.loads(out)]
    code, out, err = hone("up")
    assert code != 0
    assert told in out + err
    code, _, err = hone("plan", "--gpu", "24")
    assert code != 0
    assert told in err
    code, out, err = hone("init", "--force", "--base", str(base))
    assert code == 0
    assert "engine.max_model_len = 2048" in out
    assert "the model's own context" in out


def test_what_init_writes_for_a_known_family_that_hone_has_no_parser_for(tmp_path: Path) -> None:
    write_model(tmp_path / "mine")
    write_config(tmp_path / "mine", model_type="olmo2", architectures=["Olmo2ForCausalLM"])
    code, out, _ = hone("init", "--base", "mine")
    assert code == 0
    assert "which Hone does not know" in out
    assert 'engine.tool_call_parser = ""   (it has no chat template.)' in out
