"""A step that does not fit into memory is repeated with smaller passes, and learning stops where none fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from recorder.base.errors import MISCONFIGURED
from recorder.states import GroupState
from tests.trainer.building import random_ids, trained_row
from tests.trainer.step.left import codes, folders, group_state
from tests.trainer.step.test_core import optimizer_state, weights
from tests.trainer.training_child import BASE, SETTINGS, core, one_step, rows, start, train_on
from tests.trainer.world import World
from trainer.batch.packing import Pack
from trainer.batch.weights import WeightedRow
from trainer.errors import MemoryFull, RowTooLong, StepFailed
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.step.core import TrainerCore
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import WrittenStep

REWARDS = [1.0, 0.0, 0.5, 0.2]  # rows of about 40 tokens that share 24
FULL: dict[str, Callable[[], BaseException]] = {
    "cuda": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "cpu": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 2147483648 bytes. Error code 12 (Cannot allocate memory)"
    ),
    "cublas": lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "python": lambda: MemoryError("Unable to allocate 2.00 GiB for an array"),
}


class Machine:
    """Memory for passes of at most `room` tokens; it lists the passes that were tried.

    A row longer than a pass is computed with less memory: at most `alone` tokens of it fit.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, room: int, kind: str = "cuda", alone: int | None = None
    ) -> None:
        self.room, self.alone, self.tried = room, alone, list[int]()
        stock = Policy.hidden

        def hidden(policy: Policy, one: Pack) -> torch.Tensor:
            self.tried.append(len(one))
            alone = self.room if self.alone is None else self.alone
            if len(one) > (alone if len(one) > policy.pass_budget else self.room):
                raise FULL[kind]()
            return stock(policy, one)

        monkeypatch.setattr(Policy, "hidden", hidden)


def assert_equal(first: WrittenStep, second: WrittenStep) -> None:
    """Bit for bit: weights, and the optimizer's state."""
    mine, others = weights(first), weights(second)
    assert mine.keys() == others.keys()
    assert all(torch.equal(mine[name], others[name]) for name in mine)
    torch.testing.assert_close(optimizer_state(first), optimizer_state(second), rtol=0, atol=0)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    return lambda room, kind="cuda", alone=None: Machine(monkeypatch, room, kind, alone)


@pytest.mark.parametrize("kind", FULL)
def test_a_step_is_repeated_with_half_the_tokens_a_pass_and_equals_one_that_began_so(
    tiny_base: Path, tmp_path: Path, limited: Callable[..., Machine], kind: str
) -> None:
    expected = core(tiny_base, tmp_path / "a", token_budget=64)
    expected.go_to(BASE)
    wanted, first = one_step(expected, 1)
    small = core(tiny_base, tmp_path / "b", token_budget=256)
    machine = limited(64, kind)
    small.go_to(BASE)
    metrics, written = one_step(small, 1)
    assert small.pass_budget == 64
    assert max(machine.tried) > 64
    assert_equal(written, first)
    assert metrics == wanted


@pytest.mark.parametrize("reload", [False, True])
def test_what_is_repeated_begins_at_the_parent_also_between_two_optimizer_steps(
    tiny_base: Path, tmp_path: Path, limited: Callable[..., Machine], reload: bool
) -> None:
    """The rows of the second optimizer step are more than fit, and the first one was made by then."""

    def second(trainer: TrainerCore, first: Any) -> Any:
        if reload:
            trainer.go_to(BASE)
            trainer.go_to(start(first, 1))
        few = [replace(one, substep=0) for one in rows(2)[:2]]
        many = [replace(one, substep=1) for one in rows(3)]
        return train_on(trainer, [*few, *many], 2)

    expected = core(tiny_base, tmp_path / "a", token_budget=64)
    expected.go_to(BASE)
    wanted, straight = second(expected, one_step(expected, 1)[1])
    small = core(tiny_base, tmp_path / "b", token_budget=128)
    small.pass_budget = 64
    small.go_to(BASE)
    _, first = one_step(small, 1)
    small.pass_budget = 128
    limited(80)
    metrics, written = second(small, first)
    assert small.pass_budget == 64
    assert_equal(written, straight)
    assert metrics == wanted


def test_a_full_memory_during_the_update_itself_leaves_nothing_of_it(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = core(tiny_base, tmp_path / "a", token_budget=64)
    expected.go_to(BASE)
    _, straight = one_step(expected, 1)
    stock, failures = Optimizer.step, 0

    def step(self: Optimizer) -> dict[str, float]:
        nonlocal failures
        found = stock(self)
        if failures == 0:
            failures += 1
            raise FULL["cuda"]()
        return found

    monkeypatch.setattr(Optimizer, "step", step)
    small = core(tiny_base, tmp_path / "b", token_budget=128)
    small.go_to(BASE)
    _, written = one_step(small, 1)
    assert_equal(written, straight)


def test_a_row_longer_than_a_pass_stands_alone_in_its_own(
    tiny_base: Path, tmp_path: Path, limited: Callable[..., Machine]
) -> None:
    """Rows may be as long as `token_budget`, whatever a pass holds."""
    long = trained_row(random_ids(100, 5), [97, 98], 1.0, "long", behaviour=-4.0)
    trainer = core(tiny_base, tmp_path, token_budget=256)
    trainer.go_to(BASE)
    machine = limited(100)
    metrics, _ = train_on(trainer, [*rows(1), WeightedRow(long, 1.0, 0.1)])
    assert trainer.pass_budget == 64
    assert metrics["trained_tokens"] == sum(one.row.trained_tokens for one in rows(1)) + 2
    assert 99 in machine.tried  # cut after its last trained token


def test_a_row_that_does_not_fit_alone_ends_it_with_one_sentence(
    tiny_base: Path, tmp_path: Path, limited: Callable[..., Machine]
) -> None:
    trainer = core(tiny_base, tmp_path, token_budget=256)
    trainer.go_to(BASE)
    machine = limited(20)
    with pytest.raises(MemoryFull) as told:
        one_step(trainer, 1)
    assert told.value.exit_code == MISCONFIGURED
    assert not isinstance(told.value, StepFailed)
    sentence = str(told.value)
    lengths = {int(one.row.trained.nonzero()[0][-1]) + 1 for one in rows(1)}
    assert any(f"one row of {length} tokens" in sentence for length in lengths)
    for part in ("cpu", "GiB free", "trainer.token_budget", "Tried to allocate 2.00 GiB"):
        assert part in sentence
    assert len(machine.tried) < 10  # it is not tried again and again
    assert list((tmp_path / "adapters").glob("*")) == []


def test_a_model_whose_rows_stand_alone_is_not_tried_again(
    tiny_base: Path, tmp_path: Path, limited: Callable[..., Machine]
) -> None:
    trainer = core(tiny_base, tmp_path, token_budget=256)
    trainer.policy.set_attention("sdpa")
    trainer.go_to(BASE)
    machine = limited(20)
    with pytest.raises(MemoryFull, match=r"trainer\.token_budget"):
        one_step(trainer, 1)
    assert len([tokens for tokens in machine.tried if tokens > 20]) == 2  # the ordinary way, and with less memory


@pytest.mark.parametrize("attention", ["hone_packed", "sdpa"])
def test_one_row_that_does_not_fit_the_ordinary_way_is_computed_with_less_memory(
    tiny_base: Path, tmp_path: Path, limited: Callable[..., Machine], attention: str
) -> None:
    def made(folder: Path) -> TrainerCore:
        trainer = core(tiny_base, folder, token_budget=256)
        trainer.policy.set_attention(attention)
        trainer.go_to(BASE)
        return trainer

    expected = made(tmp_path / "a")
    expected.pass_budget = 16
    wanted, straight = one_step(expected, 1)
    small = made(tmp_path / "b")
    limited(20, alone=100)
    metrics, written = one_step(small, 1)
    assert small.pass_budget == 16
    assert_equal(written, straight)
    assert metrics == wanted


def long_row(tokens: int, name: str = "long") -> WeightedRow:
    row = trained_row(random_ids(tokens, 5), [tokens - 20, tokens - 1], 1.0, name, behaviour=-4.0)
    return WeightedRow(row, 1.0, 0.1)


@pytest.mark.parametrize("kind", FULL)
def test_a_row_above_the_budget_that_does_not_fit_is_told_and_no_longer_accepted(
    tiny_base: Path, tmp_path: Path, limited: Callable[..., Machine], kind: str
) -> None:
    trainer = core(tiny_base, tmp_path, token_budget=64)
    trainer.go_to(BASE)
    before = trainer.policy.state()
    assert trainer.fits_alone(200)
    limited(64, kind, alone=150)
    with pytest.raises(RowTooLong, match=r"200 tokens .* GiB free"):
        train_on(trainer, [*rows(1), long_row(200)])
    assert not trainer.fits_alone(175)  # what is nearly as long is not tried either
    assert trainer.fits_alone(174)
    assert trainer.pass_budget == 64  # the other passes fitted
    trainer.go_to(BASE)
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.policy.state().items())
    metrics, _ = train_on(trainer, [*rows(1), long_row(150)])
    assert metrics["trained_tokens"] == sum(one.row.trained_tokens for one in rows(1)) + 2


def _moments(adamw: Any) -> list[torch.Tensor]:
    return [state["exp_avg"] for _, state in sorted(adamw.items())]


def test_a_row_above_the_budget_trains_as_with_a_larger_budget(tiny_base: Path, tmp_path: Path) -> None:
    def made(name: str, **changes: Any) -> tuple[dict[str, float], WrittenStep]:
        trainer = core(tiny_base, tmp_path / name, **changes)
        trainer.go_to(BASE)
        one_step(trainer, 1)
        return train_on(trainer, [*rows(2), long_row(230), long_row(90, "other")], 2)

    wanted, straight = made("a", token_budget=512)
    for name, changes in {"b": {"token_budget": 64}, "c": {"token_budget": 64, "offload_inputs": True}}.items():
        metrics, written = made(name, **changes)
        assert metrics["trained_tokens"] == wanted["trained_tokens"]
        for figure in ("loss", "grad_norm", "ratio_mean", "entropy", "logprob_gap"):
            assert metrics[figure] == pytest.approx(wanted[figure], rel=1e-5, abs=1e-6)
        found, expected = (optimizer_state(one)["adamw"] for one in (written, straight))
        torch.testing.assert_close(_moments(found), _moments(expected), rtol=1e-4, atol=1e-6)


def test_what_the_memory_plan_says_decides_which_rows_are_computed(tiny_base: Path, tmp_path: Path) -> None:
    folders = TrainerFolders.of(tmp_path)
    trainer = TrainerCore(tiny_base, SETTINGS, folders, fits_alone=lambda row_tokens: row_tokens <= 1000)
    assert trainer.fits_alone(1000)
    assert not trainer.fits_alone(1001)


def test_the_pool_is_released_after_every_step(
    tiny_base: Path, tmp_path: Path, limited: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[str] = []
    monkeypatch.setattr("trainer.policy.memory.release_pool", lambda device: released.append(device.type))
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    one_step(trainer, 1)
    assert released == ["cpu"]
    limited(2)
    with pytest.raises(MemoryFull):
        train_on(trainer, rows(2), 2)
    assert released == ["cpu"] * 2


def test_passes_of_several_rows_are_halved_beside_a_long_row_that_fits(
    tiny_base: Path, tmp_path: Path, limited: Callable[..., Machine]
) -> None:
    """The pass that failed decides, not the largest one of the step."""
    trainer = core(tiny_base, tmp_path, token_budget=128)
    trainer.go_to(BASE)
    limited(64, alone=200)
    metrics, _ = train_on(trainer, [*rows(1), long_row(200)])
    assert trainer.pass_budget == 64
    assert metrics["trained_tokens"] == sum(one.row.trained_tokens for one in rows(1)) + 2


def test_another_error_is_not_taken_for_a_full_memory(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("the size of tensor a (3) must match the size of tensor b (4)")

    trainer = core(tiny_base, tmp_path)
    monkeypatch.setattr(Policy, "hidden", broken)
    trainer.go_to(BASE)
    with pytest.raises(RuntimeError, match="size of tensor"):
        one_step(trainer, 1)


async def test_late_turns_are_trained_in_a_pass_of_their_own_and_excluded_where_that_does_not_fit(
    world: World, limited: Callable[..., Machine]
) -> None:
    short = await world.group("g1", REWARDS, turns=2)  # the first turn ends at 30 tokens, each other one 10 later
    long = await world.group("g2", [1.0, 0.0], turns=6, seed=1)
    same = await world.group("g3", [1.0, 1.0], seed=2)
    machine = limited(30, alone=55)
    async with await world.trainer(token_budget=30) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        tried = [tokens for tokens in machine.tried if tokens > 55]
        assert tried == [80, 60]  # what is an eighth shorter than 80 is not tried
        machine.tried.clear()
        await world.promote(report.version)
        await world.group("g4", [1.0, 0.0], turns=6, seed=3)
        again = await trainer.train_once(await world.claim(trainer))
        assert max(machine.tried) == 50  # what did not fit is not tried again
    assert report.notice is not None
    assert "tokens or more are excluded" in report.notice
    assert again.notice is None
    assert report.metrics["trained_tokens"] == 4 * 12 + 2 * 18  # of the long ones the first three turns
    assert report.masked == {"row_too_long": 2 * 3}
    assert report.left_out == {"zero_variance": 2}
    assert report.metrics["groups"] == 3
    assert report.metrics["groups_trained"] == 2
    for id_ in (short, long):
        assert await group_state(world, id_) == (GroupState.TRAINED, None)
        assert await codes(world, "group", id_) == []
    assert await group_state(world, same) == (GroupState.LEFT_OUT, "zero_variance")


async def test_a_group_whose_rows_do_not_even_fit_alone_is_excluded_for_that(
    world: World, limited: Callable[..., Machine]
) -> None:
    group_id = await world.group("g1", [1.0, 0.0], turns=1)
    async with await world.trainer(token_budget=20) as trainer:
        limited(20, alone=25)
        report = await trainer.train_once(await world.claim(trainer))
    assert report.version is None
    assert report.left_out == {"row_too_long": 2}
    assert await group_state(world, group_id) == (GroupState.LEFT_OUT, "row_too_long")


async def test_the_size_that_fits_is_told_once_and_remembered(world: World, limited: Callable[..., Machine]) -> None:
    for number in range(2):
        await world.group(f"g{number}", REWARDS, seed=number)
    machine = limited(64)
    async with await world.trainer(token_budget=256) as trainer:
        first = await trainer.train_once(await world.claim(trainer, limit=1))
        assert first.version is not None
        assert first.notice is not None
        for part in ("256 tokens", "64 tokens", "trainer.token_budget", "Results are the same"):
            assert part in first.notice
        await world.promote(first.version)
        second = await trainer.train_once(await world.claim(trainer))
        assert second.notice is None
        assert second.version is not None
        await world.promote(second.version)
    await world.group("g3", REWARDS, seed=3)
    async with await world.trainer(token_budget=256) as again:
        machine.tried.clear()
        assert (await again.train_once(await world.claim(again))).notice is None
    assert max(machine.tried) <= 64


@pytest.mark.parametrize("back", [False, True])
async def test_another_token_budget_forgets_what_fitted(
    world: World, limited: Callable[..., Machine], back: bool
) -> None:
    await world.group("g1", REWARDS)
    limited(64)
    async with await world.trainer(token_budget=256) as trainer:
        version = (await trainer.train_once(await world.claim(trainer))).version
        assert version is not None
        assert trainer._core.pass_budget == 64
    async with await world.trainer(token_budget=200) as trainer:
        assert trainer._core.pass_budget == 200
    if back:
        async with await world.trainer(token_budget=256) as trainer:
            assert trainer._core.pass_budget == 256


async def test_a_full_memory_is_no_fault_of_the_groups(world: World, limited: Callable[..., Machine]) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    machine = limited(1000)
    async with await world.trainer(max_tries=1) as trainer:
        machine.room = 10  # alone, too
        with pytest.raises(MemoryFull):
            await trainer.train_once(await world.claim(trainer))
        assert await group_state(world, group_id) == (GroupState.SCORED, None)
        assert await codes(world, "group", group_id) == []
        assert folders(world) == []
        machine.room = 1000
        assert (await trainer.train_once(await world.claim(trainer))).version is not None


@pytest.mark.parametrize("kind", FULL)
async def test_a_parent_that_does_not_fit_is_no_fault_of_the_groups(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    group_id = await world.group("g1", [1.0, 0.0])

    def full(*args: Any) -> None:
        raise FULL[kind]()

    async with await world.trainer(max_tries=1) as trainer:
        monkeypatch.setattr(Policy, "load_state", full)
        with pytest.raises(MemoryFull, match=r"org/helpdesk|version"):
            await trainer.train_once(await world.claim(trainer))
    assert await group_state(world, group_id) == (GroupState.SCORED, None)
