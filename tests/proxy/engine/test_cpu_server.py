"""Requests without an adapter on a CPU: vLLM's own operations leave them alone, in every process of the engine."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from proxy.engine import cpu_server
from proxy.engine.cpu_server import only_where_adapted

TOKENS, RANK, WIDTH = 6, 4, 10
BASE, FIRST, LAST = -1, 0, 1  # slots: none, and the two there are
MIXED = torch.tensor([BASE, FIRST, LAST, BASE, LAST, BASE])


@pytest.fixture(scope="module")
def operations() -> ModuleType:
    """vLLM's file with the operations, opened by itself: vLLM takes ten seconds to import."""
    vllm = importlib.util.find_spec("vllm")
    assert vllm is not None, "no vLLM here: `make setup` installs it"
    assert vllm.origin is not None
    path = Path(vllm.origin).parent / "lora" / "ops" / "torch_ops" / "lora_ops.py"
    spec = importlib.util.spec_from_file_location("vllms_operations", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def mended(operations: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in cpu_server.OPERATIONS:
        monkeypatch.setattr(operations, name, only_where_adapted(getattr(operations, name)))
    return operations


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


INPUTS, WEIGHTS, OUTPUT = numbers(TOKENS, RANK), numbers(2, 1, WIDTH, RANK), numbers(TOKENS, WIDTH)


def expanded(
    operations: ModuleType,
    slots: torch.Tensor,
    name: str = "expand",
    weights: torch.Tensor = WEIGHTS,
    *,
    add: bool = True,
) -> torch.Tensor:
    """What a layer gives once the operation is done; a slice is all of its width."""
    output = OUTPUT.clone()
    whole = (0, WIDTH) if name.endswith("_slice") else ()
    if name.startswith("bgmv"):
        getattr(operations, name)(INPUTS, weights, output, slots, *whole, add)
    else:
        runs, lengths = torch.unique_consecutive(slots, return_counts=True)
        starts = lengths.cumsum(0) - lengths
        about = (starts, lengths, runs, len(runs), int(lengths.max()), TOKENS)
        getattr(operations, name)(INPUTS, weights, output, *about, *whole, add)
    return output


NAMES = ["bgmv_expand", "bgmv_expand_slice", "sgmv_expand", "sgmv_expand_slice"]


@pytest.mark.parametrize("name", NAMES)
def test_vllm_still_answers_the_base_by_the_last_slot(operations: ModuleType, name: str) -> None:
    """Once this fails, vLLM has mended it, and `proxy.engine.cpu_server` can go."""
    assert expanded(operations, MIXED, name).equal(expanded(operations, MIXED.where(MIXED != BASE, LAST), name))


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_row_without_an_adapter_stays_and_the_others_are_as_they_were(
    operations: ModuleType, name: str, add: bool, request: pytest.FixtureRequest
) -> None:
    own = expanded(operations, MIXED, name, add=add)
    found = expanded(request.getfixturevalue("mended"), MIXED, name, add=add)
    adapted = MIXED != BASE
    assert found[~adapted].equal(OUTPUT[~adapted])
    assert found[adapted].equal(own[adapted])
    assert not found[adapted].isclose(OUTPUT[adapted]).all(-1).any(), "every adapted row is another"


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_adapter_does_not_reach_the_base(mended: ModuleType, name: str) -> None:
    found = expanded(mended, MIXED, name, torch.full_like(WEIGHTS, torch.nan))
    assert found[MIXED == BASE].equal(OUTPUT[MIXED == BASE])
    assert found[MIXED != BASE].isnan().all()


@pytest.mark.parametrize("slot", [BASE, LAST])
def test_one_slot_may_stand_for_all_rows(mended: ModuleType, slot: int) -> None:
    """As vLLM gives it for a prompt's logprobs: one request, the rows of all its tokens."""
    one, each = torch.tensor([slot]), torch.full((TOKENS,), slot)
    assert expanded(mended, one, "bgmv_expand").allclose(expanded(mended, each, "bgmv_expand"))


def test_operations_that_are_gone_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in cpu_server.MODULES[:2]:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    with pytest.raises(SystemExit, match=r"bgmv_expand.*engine\.python.*engine\.urls"):
        cpu_server.mend()


PROCESS = """
import multiprocessing
from vllm.lora.punica_wrapper import punica_cpu
from vllm.lora.ops import torch_ops

def tell(who):
    named = (torch_ops.bgmv_expand, torch_ops.bgmv_expand_slice, punica_cpu.bgmv_expand, punica_cpu.bgmv_expand_slice)
    print(who, all(hasattr(one, "__wrapped__") for one in named), flush=True)

def child(deeper):
    tell("child")
    start(tell, "grandchild") if deeper else None

def start(what, argument):
    process = multiprocessing.get_context("spawn").Process(target=what, args=(argument,))
    process.start()
    process.join()
"""
FAKE = {
    "__init__.py": "",
    "lora/ops/torch_ops/lora_ops.py": "def bgmv_expand(): ...\ndef bgmv_expand_slice(): ...\n",
    "lora/ops/torch_ops/__init__.py": "from .lora_ops import bgmv_expand, bgmv_expand_slice\n",
    "lora/punica_wrapper/punica_cpu.py": "from ..ops.torch_ops import bgmv_expand, bgmv_expand_slice\n",
    "process.py": PROCESS,
    "entrypoints/openai/api_server.py": (
        "import sys\nfrom vllm import process\nif __name__ == '__main__':\n"
        "    print(sys.argv[1:], sys.path[0], flush=True)\n    process.tell('server')\n"
        "    process.start(process.child, True)\n"
    ),
}


def test_every_process_of_the_engine_is_mended_and_started_as_a_module_is(tmp_path: Path) -> None:
    """A stand-in for vLLM starts processes as it does on a CPU; the real one: tests/e2e/test_engine_lora.py."""
    for name, text in FAKE.items():
        path = tmp_path / "lib" / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "here").mkdir()
    done = subprocess.run(
        [sys.executable, cpu_server.__file__, "--port", "7"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path / "here", env={"PYTHONPATH": str(tmp_path / "lib")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"['--port', '7'] {tmp_path / 'here'}", "server True", "child True", "grandchild True",
    ]  # fmt: skip
