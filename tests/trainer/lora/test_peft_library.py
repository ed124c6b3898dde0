"""The trainer imports PEFT in one place, which leaves bitsandbytes and torch's compiler unloaded."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys

import pytest

from tests.names import ROOT

PLACE = "trainer/lora/peft_library.py"


def test_peft_is_imported_in_one_place() -> None:
    found = set()
    for file in (ROOT / "trainer").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.partition(".")[0] == "peft" for name in names):
                found.add(file.relative_to(ROOT).as_posix())
    assert found == {PLACE}


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
def test_neither_bitsandbytes_nor_a_compiler_is_loaded_and_both_can_be_later() -> None:
    program = (
        "import sys\n"
        "import trainer.lora.peft_library\n"
        "from peft.import_utils import is_bnb_available\n"
        "print(*({'bitsandbytes', 'torch._inductor.lowering'} & sys.modules.keys()), is_bnb_available())\n"
        "import bitsandbytes.functional\n"
        "print(bitsandbytes.functional.quantize_4bit.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False", "quantize_4bit"]
