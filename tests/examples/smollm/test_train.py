"""The settings, what a run hands to Hone, its result from a report and recorded attempts, and what is then missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.running.campaign import Project
from examples.running.command import ExampleRun
from examples.smollm import results, train
from examples.smollm.base import FOLDER as BASE
from examples.smollm.results import Attempt
from examples.smollm.tasks import TRAINED, UNTRAINED, name_of
from proxy.settings.loader import load_settings
from recorder.stats.means import share_interval

EXAMPLE = train.EXAMPLE


def attempt(kind: str, reward: float | None, *, number: int, step: int | None = None, topic: str = "ice") -> Attempt:
    scenario = f"{kind.replace('+', '_and_')}.{topic}"
    return Attempt(scenario, step, number, "Write.", f"said by {number}", reward, [1, 2], [3] * 10, [-1.0] * 10, 1.0)


def step(number: int, **metrics: float) -> dict[str, Any]:
    return {
        "step": number, "version": f"smollm@{number}", "sampled_by": f"smollm@{number - 1}", "success": 0.25,
        "reward": 0.5, "seconds": {"sampling": 20.0, "training": 5.0}, "metrics": metrics,
    }  # fmt: skip


def report(**changes: Any) -> dict[str, Any]:
    steps = [step(number, logprob_gap_max=2e-5, fresh_tokens=100.0) for number in range(1, 5)]
    return {
        "steps": steps, "validations": [], "served": "smollm@4", "seconds": {"sampling": 80.0}, "alarms": [],
        "excluded": [], "status": {"text": "all its steps are done"}, "failed_steps": 0, **changes,
    }  # fmt: skip


def result(tested: list[Attempt], *, short: bool = False, **changes: Any) -> results.Result:
    sampled = [attempt("lower", 1.0, number=0, step=number) for number in range(1, 5) for _ in range(8)]
    return results.summarize(
        report(**changes), [*sampled, *tested], seed=7, short=short, model="tiny", base=Path("no-folder"), float32=True,
        sessions=[{"seconds": 60.0, "cpu_minutes": 1.5}, {"seconds": 30.0, "cpu_minutes": 0.5}],
    )  # fmt: skip


def end_attempts(before: int, after: int) -> list[Attempt]:
    """100 attempts at one trained kind before and after, and 20 at an untrained kind, none of which succeeds."""
    kind, other = name_of(TRAINED[0]), name_of(UNTRAINED[0])
    found = [
        attempt(kind, 1.0 if place < met else 0.5, number=number, topic=f"topic{place}")
        for number, met in ((0, before), (4, after))
        for place in range(100)
    ]
    return [*found, *(attempt(other, 0.5, number=number, topic=f"t{p}") for number in (0, 4) for p in range(20))]


@pytest.mark.parametrize("name", ["hone.toml", "gpu.toml"])
def test_the_settings_have_the_preset_no_judge_model_and_success_is_every_criterion(name: str) -> None:
    settings = load_settings(EXAMPLE / name, {}).settings
    assert settings.campaign.preset == "rlvr"
    assert not settings.judge.model
    assert [one.name for one in settings.judge.rewards] == [settings.campaign.success]
    assert settings.campaign.success_threshold == 1
    assert settings.trainer.rank <= settings.engine.max_lora_rank
    assert list(settings.aliases) == ["smollm"]


def test_a_gpu_s_engine_leaves_room_for_the_trainer_and_its_rate_is_a_large_model_s() -> None:
    gpu, small = (load_settings(EXAMPLE / name, {}).settings for name in ("gpu.toml", "hone.toml"))
    assert gpu.engine.gpu_memory_utilization is not None
    assert gpu.engine.gpu_memory_utilization <= 0.6
    assert gpu.trainer.lr < small.trainer.lr / 10
    assert small.engine.base == str(BASE)
    assert small.engine.dtype == "float32"


def test_a_run_names_its_files_and_the_short_form_measures_nothing_held_out(tmp_path: Path) -> None:
    full = train.campaign_environment(ExampleRun(tmp_path, 7, short=False))
    short = train.campaign_environment(ExampleRun(tmp_path, 7, short=True))
    assert all(Path(full[f"HONE_CAMPAIGN__{part}SCENARIOS"]).is_file() for part in ("", "VAL_", "TEST_"))
    assert "HONE_CAMPAIGN__TEST_SCENARIOS" not in short
    assert int(short["HONE_CAMPAIGN__STEPS"]) > train.LEAST_LIVE


def test_a_rise_needs_intervals_apart_and_is_of_trained_kinds() -> None:
    rise = result(end_attempts(10, 50))
    sure = share_interval(0.5, 100)
    assert sure is not None
    held = rise["held_out"]["trained"]
    assert (held["before"]["success"], held["after"]["success"]) == (0.1, 0.5)
    assert held["after"]["low"] == pytest.approx(sure.low, abs=1e-4)
    assert rise["rose"]
    assert not rise["held_out"]["untrained"]["rose"]
    assert train.missing(rise) == []
    [why] = train.missing(result(end_attempts(10, 20)))
    assert "did not rise with certainty" in why


def test_kinds_that_the_base_always_or_never_passes_are_named() -> None:
    by_name = {one["kind"]: one for one in result(end_attempts(10, 50))["kinds"]}
    assert by_name[name_of(TRAINED[0])] == {
        "kind": name_of(TRAINED[0]), "trained": True, "before": [10, 100], "after": [50, 100],
        "base_passes_5_to_90": True,
    }  # fmt: skip
    assert by_name[name_of(UNTRAINED[0])]["base_passes_5_to_90"] is False
    assert by_name[name_of(TRAINED[1])]["base_passes_5_to_90"] is None
    assert len(by_name) == 50


def test_an_answer_without_a_reward_counts_nowhere() -> None:
    some = [*end_attempts(10, 50), attempt(name_of(TRAINED[0]), None, number=4)]
    assert result(some)["held_out"]["trained"]["after"]["attempts"] == 100


def test_figures_of_the_machine_are_sums_and_unknown_where_a_start_was_killed() -> None:
    made = result([], short=True)
    assert (made["minutes"], made["cpu_minutes"]) == (1.5, 2.0)
    assert made["tokens_per_s"] == 4 * 8 * 10 / 80
    assert made["trained_tokens"] == 400
    killed = results._sum([{"seconds": None}, {"seconds": 60.0}], "seconds", 60)
    assert killed is None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"steps": [step(1, logprob_gap_max=2e-5)]}, "1 versions went live, fewer than 4"),
        (
            {"steps": [step(number, logprob_gap_max=2e-4) for number in range(1, 6)]},
            "Δlogprob| to the engine is 0.0002",
        ),
        ({"steps": [step(number) for number in range(1, 6)]}, "Δlogprob| to the engine is None"),
        ({"failed_steps": 2}, "2 steps failed"),
    ],
)
def test_the_short_form_claims_no_rise_but_versions_and_exact_tokens(changes: dict[str, Any], word: str) -> None:
    assert train.missing(result([], short=True)) == []
    [why] = train.missing(result([], short=True, **changes))
    assert word in why


def test_the_short_form_says_that_it_claims_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train.told(result([], short=True), tmp_path) == 0
    assert "no claim about learning" in capsys.readouterr().out
    assert train.told(result(end_attempts(10, 20)), tmp_path) == 1
    assert "20.0% of 100" in capsys.readouterr().out


def test_every_start_is_noted_also_one_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / train.SESSIONS
    train.Session(file).__enter__()  # and no end
    assert json.loads(file.read_text()) == [{"seconds": None, "cpu_minutes": None}]
    with train.Session(file):
        pass
    first, second = json.loads(file.read_text())
    assert first["seconds"] is None
    assert second["seconds"] >= 0 <= second["cpu_minutes"]


def test_only_a_finished_campaign_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(EXAMPLE / "hone.toml", tmp_path, {})
    state = "running"
    monkeypatch.setattr(Project, "report", lambda self: {"state": state})
    assert not train.is_finished(project)
    (tmp_path / train.SESSIONS).write_text("[]")
    assert not train.is_finished(project)
    state = "finished"
    assert train.is_finished(project)


def test_the_kl_divergence_is_the_mean_log_ratio_of_sampled_tokens(tmp_path: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(1)
    model = LlamaForCausalLM(config)
    model.save_pretrained(tmp_path)
    prompt, ids = [1, 2, 3], [4, 5]
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([prompt + ids])).logits[0] / 0.5, -1)
    own = [float(logprobs[2, 4]) + 0.1, float(logprobs[3, 5]) + 0.3]
    found = results.kl_to_base(tmp_path, [Attempt("lower.ice", None, 3, "", "", 1.0, prompt, ids, own, 0.5)])
    assert found == {"nats_a_token": pytest.approx(0.2, abs=1e-4), "answers": 1, "tokens": 2}
    assert results.kl_to_base(tmp_path, []) is None
    assert results.kl_to_base(tmp_path / "hub-id", [attempt("lower", 1.0, number=1)]) is None


def test_the_table_of_the_readme_is_made_of_the_committed_results() -> None:
    found = [json.loads(file.read_text()) for file in sorted(results.COMMITTED.glob("*.json"))]
    text = results.README.read_text()
    assert results.MARKS.put(text, results.table(found)) == text


def test_a_row_of_the_table_has_both_parts_with_intervals() -> None:
    made = results.table([result(end_attempts(10, 50)), result([], short=True)])
    assert "10.0% (5.5%–17.4%) → 50.0%" in made
    assert "| `SHORT=1`, seed 7 | 4 | 400 | 2.0e-05 |" in made
    assert "not measured" in made


@pytest.mark.parametrize("path", sorted((EXAMPLE / "results").glob("*.json")), ids=lambda path: path.stem)
def test_a_committed_result_shows_what_it_claims(path: Path) -> None:
    one = json.loads(path.read_text())
    assert train.missing(one) == []
    assert path.stem == f"{'short' if one['short'] else 'seed'}-{one['seed']}"
