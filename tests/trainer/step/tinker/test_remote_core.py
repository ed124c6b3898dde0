"""A step at a training service is the local step: same loss, same weights, same optimizer, same files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer.building import random_ids, trained_row
from tests.trainer.step.tinker.conftest import OpenCore
from tests.trainer.tinker_server import TinkerServer
from tests.trainer.world import Engine
from trainer.artifacts import adapters
from trainer.artifacts.adapters import AdapterOrigin
from trainer.batch.weights import WeightedRow
from trainer.errors import StepFailed
from trainer.step.core import TrainerCore
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import PhaseSeconds, StartVersion, WrittenStep
from trainer.step.tinker.remote_core import TinkerCore

BASE = StartVersion("v0", None)


def rows(step: int, substeps: int = 1) -> list[WeightedRow]:
    """Eight rows in two families that share a prefix, half of them better than the other half."""
    made = []
    for number in range(8):
        ids = random_ids(20, 100 * step + number % 2) + random_ids(8 + number, 1000 * step + number)
        row = trained_row(ids, list(range(22, len(ids))), 1.0, f"t{number}", behaviour=-4.0)
        made.append(WeightedRow(row, 0.5 if number < 4 else -0.5, 1 / (8 * row.trained_tokens), number % substeps))
    return made


def one_step(core: Any, step: int, given: Sequence[WeightedRow], rate: float = 1e-2) -> tuple[Any, WrittenStep]:
    """Step `step` from the version that the core is at."""
    origin = AdapterOrigin("tiny", step, f"tiny@{step - 1}", "base", "fingerprint")
    trained = core.step(given, rate, lambda: False, PhaseSeconds())
    written = core.write(origin, trained, PhaseSeconds())
    core.became(f"v{step}")
    return trained, written


def weights_of(written: WrittenStep) -> dict[str, Tensor]:
    """The adapter on disk."""
    return adapters.read_adapter(written.published.path, written.published.manifest_sha256)


def local_core(base: Path, folder: Path, remote: TinkerCore) -> TrainerCore:
    """The trainer on this machine under the same settings."""
    given = remote._settings.model_copy(update={"backend": "local"})
    return TrainerCore(base, given, TrainerFolders.of(folder))


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_weights_after_two_steps_are_those_of_the_local_steps(
    open_core: OpenCore, tiny_base: Path, tmp_path: Path
) -> None:
    remote = open_core()
    local = local_core(tiny_base, tmp_path / "local", remote)
    remote.go_to(BASE)
    local.go_to(BASE)
    for step in (1, 2):
        there, written = one_step(remote, step, rows(step))
        here, own = one_step(local, step, rows(step))
        assert largest_difference(weights_of(written), weights_of(own)) < 1e-6
        for name in ("loss", "ratio_mean", "ratio_max", "clip_fraction", "trained_tokens", "fresh_tokens"):
            assert there.metrics[name] == pytest.approx(here.metrics[name], rel=1e-4, abs=1e-6), name
        assert there.changed


def record_gradients(core: TrainerCore, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    """Of each update of the local core, before it is made."""
    recorded: list[dict[str, Tensor]] = []
    update = core._optimizer.step

    def recording() -> dict[str, float]:
        recorded.append(
            {name: one.grad.clone() for name, one in core.policy.parameters.items() if one.grad is not None}
        )
        return update()

    monkeypatch.setattr(core._optimizer, "step", recording)
    return recorded


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "cispo"},
        {"loss": "reinforce", "normaliser": "token"},
        {"loss": "gspo", "substeps": 2},
        {"target": "attention", "substeps": 2},
    ],
    ids=["cispo", "reinforce", "gspo in two substeps", "attention in two substeps"],
)
def test_other_losses_targets_and_substeps_give_the_local_step(
    changes: dict[str, Any], open_core: OpenCore, tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam's first step is nearly ±rate for every number, however small its gradient: it amplifies the rounding of a
    gradient that is nothing but rounding. So numbers are compared whose gradient is above 1e-4 of its tensor's norm
    in every update.
    """
    remote = open_core(**changes)
    local = local_core(tiny_base, tmp_path / "local", remote)
    given = rows(1, substeps=changes.get("substeps", 1))
    remote.go_to(BASE)
    local.go_to(BASE)
    gradients = record_gradients(local, monkeypatch)
    there, written = one_step(remote, 1, given)
    here, own = one_step(local, 1, given)
    assert len(gradients) == changes.get("substeps", 1)
    mine, theirs, compared = weights_of(own), weights_of(written), 0
    for name in mine:
        counts = torch.stack([one[name].abs() > 1e-4 * one[name].norm() for one in gradients]).all(0)
        compared += int(counts.sum())
        difference = (mine[name] - theirs[name])[counts].abs()
        assert not len(difference) or float(difference.max()) < 1e-6, name
    assert compared > 500
    for name in ("loss", "trained_tokens", "kl_engine", "logprob_gap", "clip_fraction"):
        assert there.metrics[name] == pytest.approx(here.metrics[name], rel=1e-4, abs=1e-6), name
    assert there.gaps.keys() == here.gaps.keys()


def test_a_step_goes_on_from_the_saved_state_of_its_parent(
    open_core: OpenCore, tiny_base: Path, tmp_path: Path
) -> None:
    first = open_core()
    first.go_to(BASE)
    _, written = one_step(first, 1, rows(1))
    first.close()
    again = open_core()  # another process would be the same: nothing of the first is used
    assert again.go_to(StartVersion("v1", written.published.path, written.published.manifest_sha256))
    _, second = one_step(again, 2, rows(2))
    local = local_core(tiny_base, tmp_path / "local", again)
    local.go_to(BASE)
    one_step(local, 1, rows(1))
    _, own = one_step(local, 2, rows(2))
    assert largest_difference(weights_of(second), weights_of(own)) < 1e-6


def test_the_librarys_own_defaults_are_never_used(open_core: OpenCore, service: TinkerServer) -> None:
    core = open_core(weight_decay=0.02, grad_clip=0.5, seed=11)
    core.go_to(BASE)
    core.step(rows(1), 3e-3, lambda: False, PhaseSeconds())
    (made,) = service.bodies("create_model")
    assert made["lora_config"] == {
        "rank": 4, "seed": 11, "train_mlp": True, "train_attn": True, "train_unembed": False,
    }  # fmt: skip
    (update,) = service.bodies("optim_step")
    assert update["adam_params"] == {
        "learning_rate": 3e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.02, "grad_clip_norm": 0.5,
    }  # fmt: skip


def test_only_tokens_and_weights_are_sent(open_core: OpenCore, service: TinkerServer) -> None:
    from tinker.proto import tinker_public_pb2 as proto

    core = open_core()
    core.go_to(BASE)
    core.step(rows(1), 1e-3, lambda: False, PhaseSeconds())
    sent = []
    for body in service.bodies("forward_backward"):
        request = proto.ForwardBackwardRequest()
        request.ParseFromString(body)
        sent.append(request)
    assert {request.loss_fn for request in sent} == {"cross_entropy"}
    assert {name for one in sent for row in one.data for name in row.loss_fn_inputs} == {"target_tokens", "weights"}
    trained = [request for request in sent if not request.forward_only]
    assert len(trained) == 1
    assert len(trained[0].data) == 8
    for row, one in zip(trained[0].data, rows(1), strict=True):
        weights = np.frombuffer(row.loss_fn_inputs["weights"].dense, np.float32)
        weighted = np.flatnonzero(weights) + 1  # the target after each place
        assert len(weighted)
        assert set(weighted) <= set(np.flatnonzero(one.row.trained))


def test_the_adapter_comes_from_the_model_that_trains_and_its_files_are_deleted(
    open_core: OpenCore, service: TinkerServer
) -> None:
    core = open_core()
    core.go_to(BASE)
    _, written = one_step(core, 1, rows(1))
    assert not service.bodies("save_weights_for_sampler")
    assert not service.exports
    fetched = [one for one in service.headers if one.get("user-agent", "").startswith("python-httpx")]
    assert len(fetched) == 4  # two files at the start, and two of the step
    assert not any("x-api-key" in one for one in fetched)
    (state,) = service.checkpoints
    assert state.startswith("tinker://")
    assert state in (written.checkpoint / "tinker.json").read_text()
    adapters.check_adapter(written.published.path, core._plan.shapes, 4)
    assert adapters.lora_alpha(written.published.path) == 8.0


def test_a_probe_names_sampled_tokens_and_their_logprobs_before_and_after(open_core: OpenCore, tiny_base: Path) -> None:
    core = open_core()
    core.go_to(BASE)
    trained, written = one_step(core, 1, rows(1))
    contexts: Any = trained.probe["contexts"]
    assert len(contexts) == 8
    engine = Engine(tiny_base)
    for one in contexts:
        for path, said in ((str(written.published.path), "new"), (None, "parent")):
            expected = engine.logprobs(path, one["prompt_token_ids"], one["token_ids"], 1.0)
            assert one[said] == pytest.approx(expected, abs=1e-5)
    apart = [abs(one["new"][0] - one["parent"][0]) for one in contexts]
    assert trained.probe["separation"] == pytest.approx(np.mean(apart))
    assert apart == sorted(apart, reverse=True)


def test_a_step_that_changes_nothing_is_known(open_core: OpenCore) -> None:
    core = open_core(weight_decay=0.0)
    core.go_to(BASE)
    assert not core.step(rows(1), 0.0, lambda: False, PhaseSeconds()).changed


def test_the_state_of_a_version_that_came_to_nothing_is_deleted(open_core: OpenCore, service: TinkerServer) -> None:
    core = open_core()
    core.go_to(BASE)
    trained = core.step(rows(1), 1e-2, lambda: False, PhaseSeconds())
    core.write(AdapterOrigin("tiny", 1, "tiny@0", "base", "fingerprint"), trained, PhaseSeconds())
    assert len(service.checkpoints) == 1
    core.go_to(BASE)  # and not `became`
    assert not service.checkpoints


def test_states_expire_when_they_are_set_to(open_core: OpenCore, service: TinkerServer) -> None:
    core = open_core(tinker={"checkpoint_days": 2.5})
    core.go_to(BASE)
    one_step(core, 1, rows(1))
    (saved,) = service.bodies("save_weights")
    assert saved["ttl_seconds"] == 216_000


def test_every_row_is_computed_twice_and_the_metric_says_so(open_core: OpenCore) -> None:
    core = open_core()
    core.go_to(BASE)
    given = rows(1)
    metrics = core.step(given, 1e-2, lambda: False, PhaseSeconds()).metrics
    whole = 2 * sum(len(one.row) - 1 for one in given)
    assert whole <= metrics["forward_tokens"] <= 1.5 * whole  # and a probe after the update
    assert "entropy" not in metrics


def test_a_loss_that_is_not_finite_makes_no_update(open_core: OpenCore, service: TinkerServer) -> None:
    core = open_core()
    core.go_to(BASE)
    bad = [replace(one, advantage=float("nan")) if number == 3 else one for number, one in enumerate(rows(1))]
    with pytest.raises(StepFailed, match=r"not finite \(trajectories t3\)"):
        core.step(bad, 1e-2, lambda: False, PhaseSeconds())
    assert not service.bodies("optim_step")
    core.go_to(BASE)  # in a new session
    assert core.step(rows(1), 1e-2, lambda: False, PhaseSeconds()).changed
