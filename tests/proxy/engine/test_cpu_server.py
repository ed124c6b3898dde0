"""Adapters on a CPU: each row has its own or none, in every process of the engine."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine import cpu_server

TOKENS, RANK, WIDTH = 6, 4, 10
BASE, FIRST, LAST = -1, 0, 1  # slots: none, and the two there are
MIXED = torch.tensor([BASE, FIRST, LAST, BASE, LAST, BASE])


@pytest.fixture(scope="module")
def operations() -> ModuleType:
    """vLLM's file with the operations, opened by itself: vLLM takes ten seconds to import."""
    return opened()


def opened() -> ModuleType:
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


@pytest.fixture(scope="module")
def mended() -> ModuleType:
    """vLLM's file with our operations in it: those for whole prompts are vLLM's, which call them."""
    module = opened()
    for name, operation in cpu_server.OPERATIONS.items():
        setattr(module, name, operation)
    return module


def numbers(*shape: int) -> torch.Tensor:
    """In float64, in which an order of adding makes no difference that a test would see."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def done(
    operations: ModuleType, name: str, slots: torch.Tensor, *, weights: torch.Tensor | None = None, add: bool = True
) -> torch.Tensor:
    """What an operation makes of an output that holds numbers before; a slice is all of its width."""
    shrinks = name.endswith("shrink")
    inputs = numbers(TOKENS, WIDTH if shrinks else RANK)
    output = numbers(TOKENS, RANK if shrinks else WIDTH)
    if weights is None:
        weights = numbers(2, 1, RANK, WIDTH) if shrinks else numbers(2, 1, WIDTH, RANK)
    rest: tuple[object, ...] = (0.5,) if shrinks else (add,)
    if name.endswith("slice"):
        rest = (0, WIDTH, *rest)
    if name.startswith("sgmv"):
        runs, lengths = torch.unique_consecutive(slots, return_counts=True)
        starts = lengths.cumsum(0) - lengths
        getattr(operations, name)(
            inputs, weights, output, starts, lengths, runs, len(runs), int(lengths.max()), TOKENS, *rest
        )
    else:
        getattr(operations, name)(inputs, weights, output, slots, *rest)
    return output


EXPANDING = ["bgmv_expand", "bgmv_expand_slice", "sgmv_expand", "sgmv_expand_slice"]
NAMES = [*EXPANDING, "bgmv_shrink", "sgmv_shrink"]


def untouched(name: str) -> torch.Tensor:
    return numbers(TOKENS, RANK if name.endswith("shrink") else WIDTH)


@pytest.mark.parametrize("name", NAMES)
def test_vllm_still_answers_the_base_by_the_last_slot(operations: ModuleType, name: str) -> None:
    """Once this fails, vLLM has mended it, and `proxy.engine.cpu_server` is there for its speed alone."""
    assert done(operations, name, MIXED).equal(done(operations, name, MIXED.where(MIXED != BASE, LAST)))


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_row_without_an_adapter_stays_and_the_others_are_what_vllm_makes_of_them(
    operations: ModuleType, mended: ModuleType, name: str, add: bool
) -> None:
    own = done(operations, name, MIXED, add=add)
    found = done(mended, name, MIXED, add=add)
    adapted = MIXED != BASE
    assert found[~adapted].equal(untouched(name)[~adapted])
    torch.testing.assert_close(found[adapted], own[adapted], rtol=1e-12, atol=1e-12)
    assert not found[adapted].isclose(untouched(name)[adapted]).all(-1).any(), "every adapted row is another"


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_adapter_does_not_reach_the_base(mended: ModuleType, name: str) -> None:
    shape = (2, 1, RANK, WIDTH) if name.endswith("shrink") else (2, 1, WIDTH, RANK)
    found = done(mended, name, MIXED, weights=torch.full(shape, torch.nan))
    assert found[MIXED == BASE].equal(untouched(name)[MIXED == BASE])
    assert found[MIXED != BASE].isnan().all()


@pytest.mark.parametrize("slot", [BASE, LAST])
@pytest.mark.parametrize("name", ["bgmv_expand", "bgmv_shrink"])
def test_one_slot_may_stand_for_all_rows(mended: ModuleType, name: str, slot: int) -> None:
    """As vLLM gives it for a prompt's logprobs: one request, the rows of all its tokens."""
    one, each = torch.tensor([slot]), torch.full((TOKENS,), slot)
    assert done(mended, name, one).equal(done(mended, name, each))


@pytest.mark.parametrize("name", ["bgmv_expand", "bgmv_shrink"])
def test_slots_that_do_not_fit_the_rows_are_told(mended: ModuleType, name: str) -> None:
    with pytest.raises(ValueError, match="2 slots for 6 rows"):
        done(mended, name, torch.tensor([FIRST, LAST]))


@given(data=st.data())
def test_any_batch_is_what_each_row_is_by_itself(data: st.DataObject) -> None:
    """Of any slots and shapes: a row with an adapter is its inputs times that adapter, alone or in a batch."""
    slots = torch.tensor(data.draw(st.lists(st.integers(-1, 3), max_size=12)), dtype=torch.long)
    rank, width, offset, padding = (data.draw(st.integers(low, 9)) for low in (1, 1, 0, 0))
    scaling, add, stacked = data.draw(st.floats(0.1, 4)), data.draw(st.booleans()), data.draw(st.booleans())
    inputs, a, b = numbers(len(slots), width), numbers(4, rank, width), numbers(4, width, rank)
    kept_a, kept_b = (a.unsqueeze(1), b.unsqueeze(1)) if stacked else (a, b)
    shrunk = torch.zeros(len(slots), rank + padding, dtype=torch.float64)
    before = numbers(len(slots), offset + width + padding)
    expanded = before.clone()
    cpu_server.bgmv_shrink(inputs, kept_a, shrunk, slots, scaling)
    cpu_server.bgmv_expand_slice(shrunk[:, :rank], kept_b, expanded, slots, offset, width, add)
    for row, slot in enumerate(slots.tolist()):
        expected = before[row].clone()
        if slot >= 0:
            change = b[slot] @ (scaling * (a[slot] @ inputs[row]))
            expected[offset : offset + width] = change + (expected[offset : offset + width] if add else 0)
        torch.testing.assert_close(expanded[row], expected, rtol=1e-10, atol=1e-10)


@given(rows=st.integers(1, 5), ours=st.integers(1, 12), vllms=st.integers(1, 12))
def test_of_two_widths_what_both_have_is_written(rows: int, ours: int, vllms: int) -> None:
    inputs, weights, output = numbers(rows, RANK), numbers(1, ours, RANK), torch.zeros(rows, vllms, dtype=torch.float64)
    cpu_server.bgmv_expand(inputs, weights, output, torch.zeros(rows, dtype=torch.long))
    common = min(ours, vllms)
    torch.testing.assert_close(output[:, :common], (inputs @ weights[0].T)[:, :common])
    assert not output[:, common:].any()


TYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("name", ["bgmv_shrink", "bgmv_expand", "bgmv_expand_slice"])
@pytest.mark.parametrize("of_inputs", TYPES, ids=str)
@pytest.mark.parametrize("of_weights", TYPES, ids=str)
@pytest.mark.parametrize("of_output", TYPES, ids=str)
def test_of_any_types_it_is_what_vllm_makes_of_them(
    operations: ModuleType, name: str, of_inputs: torch.dtype, of_weights: torch.dtype, of_output: torch.dtype
) -> None:
    shrinks = name.endswith("shrink")
    inputs = numbers(TOKENS, WIDTH if shrinks else RANK).to(of_inputs)
    weights = (numbers(2, 1, RANK, WIDTH) if shrinks else numbers(2, 1, WIDTH, RANK)).to(of_weights)
    rest = (0.5,) if shrinks else (2, WIDTH, True) if name.endswith("slice") else (True,)
    own, ours = (numbers(TOKENS, WIDTH + 4).to(of_output) for _ in range(2))
    getattr(operations, name)(inputs, weights, own, MIXED, *rest)
    cpu_server.OPERATIONS[name](inputs, weights, ours, MIXED, *rest)
    assert ours.dtype == of_output
    torch.testing.assert_close(ours[MIXED != BASE], own[MIXED != BASE])
    assert ours[MIXED == BASE].equal(numbers(TOKENS, WIDTH + 4).to(of_output)[MIXED == BASE])


def test_an_adapter_of_a_lower_rank_is_padded_by_zeros_and_unchanged_by_them() -> None:
    """As vLLM keeps adapters of several ranks: each in a slot of the highest, the rest of which is 0."""
    low, high = numbers(TOKENS, RANK), numbers(2, WIDTH, RANK)
    padded = torch.nn.functional.pad(high, (0, 3))
    plain, wide = torch.zeros(TOKENS, WIDTH, dtype=torch.float64), torch.zeros(TOKENS, WIDTH, dtype=torch.float64)
    cpu_server.bgmv_expand(low, high, plain, MIXED)
    cpu_server.bgmv_expand(torch.nn.functional.pad(low, (0, 3)), padded, wide, MIXED)
    torch.testing.assert_close(plain, wide)


def test_the_output_s_type_is_the_one_that_is_counted_in() -> None:
    """Weights of half precision are not multiplied in it: what an adapter is trained to would be lost."""
    inputs, weights = numbers(3, RANK).float(), numbers(1, 1, WIDTH, RANK).bfloat16()
    output = torch.zeros(3, WIDTH)
    cpu_server.bgmv_expand(inputs, weights, output, torch.zeros(3, dtype=torch.long))
    torch.testing.assert_close(output, inputs @ weights[0, 0].float().T)


def test_operations_that_are_gone_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in cpu_server.MODULES[:2]:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    with pytest.raises(SystemExit, match=r"bgmv_shrink.*engine\.python.*engine\.urls"):
        cpu_server.patch_vllm()


def test_operations_that_are_called_otherwise_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("another")
    module.__dict__["bgmv_shrink"] = lambda inputs, weights: None
    for name in cpu_server.MODULES[:2]:
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(SystemExit, match=r"no bgmv_shrink with 5 parameters"):
        cpu_server.patch_vllm()


def test_a_vllm_without_the_operation_for_positions_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_server, "OPERATIONS", {})
    for name in (*cpu_server.MODULES[:2], cpu_server.POSITIONS):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    with pytest.raises(SystemExit, match=r"_custom_ops.* no rotary_embedding with 8 parameters"):
        cpu_server.patch_vllm()


def test_vllm_calls_them_as_they_are_written(operations: ModuleType) -> None:
    for name, operation in cpu_server.OPERATIONS.items():
        cpu_server._require(operations, name, operation)


HEAD, HEADS = 32, 4
PLACES = torch.tensor([0, 3, 1, 17, 2])


@pytest.fixture(scope="module")
def vllms_rotation() -> Callable[..., None]:
    """vLLM's compiled operation, loaded by itself."""
    vllm = importlib.util.find_spec("vllm")
    assert vllm is not None
    assert vllm.origin is not None
    kinds = ["_C_AVX2"]
    if torch.cpu._is_avx512_supported():
        kinds = ["_C"] if torch.cpu._is_avx512_bf16_supported() else ["_C_AVX512"]
    load: Any = torch.ops.load_library
    load(str(Path(vllm.origin).parent / f"{kinds[0]}.abi3.so"))
    compiled = torch.ops._C.rotary_embedding

    def rotary_embedding(positions: Any, query: Any, key: Any, size: int, cache: Any, neox: bool, *_rest: Any) -> None:
        compiled(positions, query, key, size, cache, neox)

    return rotary_embedding


def rotated(states: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """(tokens, heads, HEAD) at PLACES, by the definition: halves of a head are the parts of complex numbers."""
    cosines, sines = cache[PLACES][:, None].chunk(2, -1)
    first, second = states.chunk(2, -1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)


def parts_of_wider_states() -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys as latent attention has them: the last part of each head, and one head that all share."""
    query, key = numbers(len(PLACES), HEADS, 3 * HEAD).float(), numbers(len(PLACES), 5 * HEAD).float()
    return query[..., -HEAD:], key[:, -HEAD:].unsqueeze(1)


def rotations() -> torch.Tensor:
    angles = torch.arange(32.0)[:, None] / 100.0 ** (torch.arange(0, HEAD, 2) / HEAD)
    return torch.cat([angles.cos(), angles.sin()], -1)


def test_vllm_still_rotates_heads_of_their_own_dimension_wrongly(vllms_rotation: Callable[..., None]) -> None:
    """Once this fails, vLLM has mended it, and `make_rotary_embedding` can go."""
    query, key = parts_of_wider_states()
    expected = rotated(query, rotations())
    vllms_rotation(PLACES, query, key, HEAD, rotations(), True)
    assert (query - expected).abs().max() > 0.1


@pytest.mark.parametrize("has_key", [True, False])
def test_heads_of_their_own_dimension_are_rotated_in_place(vllms_rotation: Callable[..., None], has_key: bool) -> None:
    query, key = parts_of_wider_states()
    expected = rotated(query, rotations()), rotated(key, rotations())
    ours = cpu_server.make_rotary_embedding(vllms_rotation)
    ours(PLACES, query, key if has_key else None, HEAD, rotations(), True)
    torch.testing.assert_close(query, expected[0])
    if has_key:
        torch.testing.assert_close(key, expected[1])


def test_heads_side_by_side_are_rotated_as_before(vllms_rotation: Callable[..., None]) -> None:
    query, key = numbers(len(PLACES), HEADS * HEAD).float(), numbers(len(PLACES), HEAD).float()
    expected = [rotated(one.view(len(PLACES), -1, HEAD), rotations()).view(one.shape) for one in (query, key)]
    given = query.data_ptr()
    seen: list[int] = []

    def noting(positions: Any, states: torch.Tensor, *rest: Any) -> None:
        seen.append(states.data_ptr())
        vllms_rotation(positions, states, *rest)

    cpu_server.make_rotary_embedding(noting)(PLACES, query, key, HEAD, rotations(), True)
    assert seen == [given], "without a copy"
    torch.testing.assert_close([query, key], expected)


PROCESS = """
import multiprocessing
from vllm.lora.punica_wrapper import punica_cpu
from vllm.lora.ops import torch_ops
from vllm import _custom_ops

def tell(who):
    names = ("bgmv_shrink", "bgmv_expand", "bgmv_expand_slice")
    files = {getattr(module, name).__code__.co_filename for module in (torch_ops, punica_cpu) for name in names}
    files.add(_custom_ops.rotary_embedding.__code__.co_filename)
    print(who, [file.rpartition("/")[2] for file in files], flush=True)

def child(deeper):
    tell("child")
    start(tell, "grandchild") if deeper else None

def start(what, argument):
    process = multiprocessing.get_context("spawn").Process(target=what, args=(argument,))
    process.start()
    process.join()
"""
NAMED = ", ".join(cpu_server.OPERATIONS)
FAKE = {
    "__init__.py": "",
    "_custom_ops.py": "def rotary_embedding(positions, query, key, size, cache, is_neox, offset, inverse): ...\n",
    "lora/ops/torch_ops/lora_ops.py": """
def bgmv_shrink(inputs, weights, output, slots, scaling): ...
def bgmv_expand(inputs, weights, output, slots, add_inputs): ...
def bgmv_expand_slice(inputs, weights, output, slots, offset, size, add_inputs): ...
""",
    "lora/ops/torch_ops/__init__.py": f"from .lora_ops import {NAMED}\n",
    "lora/punica_wrapper/punica_cpu.py": f"from ..ops.torch_ops import {NAMED}\n",
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
    ours = "['cpu_server.py']"
    assert done.stdout.splitlines() == [
        f"['--port', '7'] {tmp_path / 'here'}", f"server {ours}", f"child {ours}", f"grandchild {ours}",
    ]  # fmt: skip
