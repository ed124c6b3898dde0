"""torchvision for the engines of models that read images, in a folder of its own: build/torchvision.

vLLM's classes for such models import it. Where an index has only builds for CUDA, `make setup` removes it, because its
compiled operators then fail to load, and with them every import of transformers. Engines that are asked for text call
none of them, so declaring two is enough to import the rest.

Owns: installing it there, and the environment variables with which an engine finds it. Refuses: changing the
environment of this Python.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "build" / "torchvision"
_MINOR: Final = 15  # torchvision 0.(n + 15) is built for torch 2.n
# Python runs this file at its start. The operators are those that torchvision describes without asking whether it has
# loaded its own.
_DECLARATIONS: Final = """import torch

for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def engine_environment() -> dict[str, str]:
    """The variables; none where this Python has torchvision, or where pip finds none."""
    if importlib.util.find_spec("torchvision") is not None or not _install():
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH"))))}


def _install() -> bool:
    if (FOLDER / "torchvision").is_dir():
        return True
    import torch

    name = f"torchvision=={_version(torch.__version__)}.*"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(FOLDER), name]
    if subprocess.run(command, check=False).returncode != 0:
        return False
    (FOLDER / "sitecustomize.py").write_text(_DECLARATIONS, "utf-8")
    return True


def _version(torch: str) -> str:
    """The version of torchvision for one of torch, without its last number."""
    return f"0.{int(torch.split('.')[1]) + _MINOR}"
