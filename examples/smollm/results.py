"""The result of a run as one JSON object, from Hone's report and store.

    python -m examples.smollm.results    # writes the table of the committed results into the README

Owns: success by kind and by whether a kind was trained, Wilson intervals, the curve, transcripts before and after, the
KL divergence to the base, and figures of the machine. Refuses: running (`train`), and any smoothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.running.summary import share
from examples.smollm.tasks import TRAINED, UNTRAINED, kind_of, name_of
from proxy.settings.loader import load_settings
from recorder.queue import campaigns
from recorder.queue.judging import scores
from recorder.queue.judging.scores import REWARD
from recorder.registry import versions
from recorder.settings import RecorderSettings
from recorder.states import Purpose
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.views.trajectories import transcripts
from scripts.pages.marks import Marks
from scripts.pages.table import table as markdown

Result = dict[str, Any]
Report = Mapping[str, Any]

PROJECT: Final = "default"
README: Final = Path(__file__).with_name("README.md")
COMMITTED: Final = README.with_name("results")
MARKS: Final = Marks("python -m examples.smollm.results")
LEARNABLE: Final = (0.05, 0.9)  # the base's share of success in which a kind can be learned and is not known already
TRANSCRIPTS: Final = 8
COMPARED: Final = 60  # answers for the KL divergence: one forward pass of the base each
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One recorded answer. `step`: of training, None in a test; `number`: of the version that gave it.

    `prompt_ids`, `ids` and `logprobs`: the exact tokens, and the engine's logprobs of the answer's, at `temperature`.
    """

    scenario: str
    step: int | None
    number: int
    prompt: str
    answer: str
    reward: float | None
    prompt_ids: Sequence[int]
    ids: Sequence[int]
    logprobs: Sequence[float]
    temperature: float

    @property
    def when(self) -> str:
        """Whether the base gave it, or a later version."""
        return AFTER if self.number else BEFORE


def read_attempts(data: Path, config: Path) -> list[Attempt]:
    """Return the attempts of all steps and of the test of a data folder's campaign."""
    settings = load_settings(config, {}).settings
    return asyncio.run(_read(data, settings.recorder, settings.campaign.name or "smollm"))


async def _read(data: Path, recording: RecorderSettings, name: str) -> list[Attempt]:
    store = await open_store(data, recording, migrate=False)
    try:
        campaign = await campaigns.find_campaign(Project(store, PROJECT), name)
        assert campaign is not None
        numbers = {one.id: one.number for one in await versions.list_versions(store, campaign.alias_id)}
        found = [
            one
            for step in range(1, campaign.steps_done + 1)
            for one in await _load_round(store, campaign.id, step, Purpose.TRAIN, numbers)
        ]
        return [*found, *await _load_round(store, campaign.id, campaign.steps_done, Purpose.EVAL, numbers)]
    finally:
        await store.close()


async def _load_round(
    store: Store, campaign_id: str, step: int, purpose: Purpose, numbers: Mapping[str, int]
) -> list[Attempt]:
    of = await campaigns.group_states(store, campaign_id, step, purpose)
    judged = await scores.get_scores(store, [one.current_score_id for one in of if one.current_score_id])
    rewards = {
        part.trajectory_id: part.value for score in judged.values() for part in score.parts if part.part == REWARD
    }
    found = []
    for group in await transcripts.load_groups(store, [one.group_id for one in of], with_tokens=True):
        for member in group.members:
            calls = [call for call in member.calls if call.choices and call.choices[0].token_ids is not None]
            if not calls or group.scenario is None or member.version_id is None:
                continue
            call = calls[-1]
            found.append(
                Attempt(
                    group.scenario.id,
                    step if purpose is Purpose.TRAIN else None,
                    numbers.get(member.version_id, 0),
                    str(group.scenario.input),
                    member.answer or "",
                    rewards.get(member.id),
                    list(call.prompt_token_ids or ()),
                    list(call.choices[0].token_ids or ()),
                    list(call.choices[0].logprobs or ()),
                    call.sampling.temperature,
                )
            )
    return found


def summarize(
    report: Report,
    attempts: Sequence[Attempt],
    *,
    seed: int,
    short: bool,
    model: str,
    base: Path,
    float32: bool,
    sessions: Sequence[Mapping[str, Any]],
    faults: Iterable[str] = (),
) -> Result:
    """Return a run's result.

    `model`: the name to show; `base`: its folder, or a hub id. `float32`: whether engine and trainer compute in it.
    `sessions`: seconds and CPU minutes of each start of the program, null where unknown: it was killed, or failed.
    """
    steps = report["steps"]
    gaps = [one["metrics"]["logprob_gap_max"] for one in steps if "logprob_gap_max" in one["metrics"]]
    sampled = [one for one in attempts if one.step is not None]
    tested = [one for one in attempts if one.step is None]
    sampling = sum(one["seconds"].get("sampling", 0.0) for one in steps)
    parts = held_out(tested)
    last = tested or [one for one in sampled if one.step == max(each.step or 0 for each in sampled)]
    return {
        "example": "smollm",
        "seed": seed,
        "short": short,
        "model": model,
        "float32": float32,
        "claim": None if short else "the 95 % intervals of held-out success, before and after, do not overlap",
        "rose": parts["trained"]["rose"],
        "held_out": parts,
        "kinds": kinds(tested),
        "curve": [_point(one, sampled) for one in steps],
        "validations": [
            {"step": one["step"], "version": one["version"], **share(one)} for one in report["validations"]
        ],
        "versions_live": len({one["version"] for one in steps if one["version"] and not one["version"].endswith("@0")}),
        "served": report["served"],
        "logprob_gap_max": max(gaps, default=None),
        "trained_tokens": round(sum(one["metrics"].get("fresh_tokens", 0) for one in steps)),
        "tokens_per_s": round(sum(len(one.ids) for one in sampled) / sampling, 1) if sampling else None,
        "minutes": _sum(sessions, "seconds", 60),
        "cpu_minutes": _sum(sessions, "cpu_minutes", 1),
        "seconds_by_phase": {name: round(value, 1) for name, value in report["seconds"].items()},
        "kl_to_base": kl_to_base(base, [one for one in last if one.number][:: max(1, len(last) // COMPARED)]),
        "transcripts": pairs(tested),
        "alarms": [one["alarm"]["rule"] for one in report["alarms"]],
        "excluded": {one["code"]: one["trajectories"] for one in report["excluded"]},
        "stopped": report["status"]["text"],
        "faults": [*faults, *([f"{report['failed_steps']} steps failed"] if report["failed_steps"] else [])],
    }


def succeeded(attempt: Attempt) -> bool:
    """Whether an answer meets all its criteria."""
    return attempt.reward is not None and attempt.reward >= 1


def measured(attempts: Sequence[Attempt]) -> dict[str, Any]:
    """Return the share of success with Wilson's 95 % interval, and the mean reward and number of tokens."""
    judged = [one for one in attempts if one.reward is not None]
    value = sum(map(succeeded, judged)) / len(judged) if judged else None
    return {
        **share({"value": value, "attempts": len(judged)}),
        "reward": _mean([one.reward for one in judged if one.reward is not None]),
        "tokens": _mean([len(one.ids) for one in judged]),
    }


def held_out(tested: Sequence[Attempt]) -> dict[str, Any]:
    """Return success before and after, of the trained kinds and of those that were never trained."""
    found: dict[str, Any] = {}
    for name, of in (("trained", TRAINED), ("untrained", UNTRAINED)):
        names = set(map(name_of, of))
        part = {
            when: measured([one for one in tested if kind_of(one.scenario) in names and one.when == when])
            for when in (BEFORE, AFTER)
        }
        before, after = part[BEFORE]["high"], part[AFTER]["low"]
        found[name] = {**part, "rose": before is not None and after is not None and after > before}
    return found


def kinds(tested: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Return each kind's successes and attempts before and after, and whether the base's share leaves room to learn."""
    by_kind: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for one in tested:
        by_kind[kind_of(one.scenario), one.when].append(one)
    rows = []
    for of, trained in ((TRAINED, True), (UNTRAINED, False)):
        for name in map(name_of, of):
            before = by_kind[name, BEFORE]
            counts = {w: [sum(map(succeeded, by_kind[name, w])), len(by_kind[name, w])] for w in (BEFORE, AFTER)}
            share_before = counts[BEFORE][0] / len(before) if before else None
            learnable = None if share_before is None else LEARNABLE[0] <= share_before <= LEARNABLE[1]
            rows.append({"kind": name, "trained": trained, **counts, "base_passes_5_to_90": learnable})
    return rows if tested else []


def pairs(tested: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Return some instructions with the answers before and after: evenly chosen, whatever the result."""
    by_scenario: dict[str, dict[str, Attempt]] = defaultdict(dict)
    for one in tested:
        by_scenario[one.scenario][one.when] = one
    both = [by_scenario[name] for name in sorted(by_scenario) if len(by_scenario[name]) == len((BEFORE, AFTER))]
    return [
        {
            "prompt": one[BEFORE].prompt,
            **{when: {"answer": one[when].answer, "reward": one[when].reward} for when in (BEFORE, AFTER)},
        }
        for one in both[:: max(1, len(both) // TRANSCRIPTS)][:TRANSCRIPTS]
    ]


def kl_to_base(base: Path, answers: Sequence[Attempt]) -> dict[str, Any] | None:
    """Estimate KL(version ‖ base) in nats a token: the mean log ratio over tokens that the version sampled.

    Both at the temperature of the answers. The version's logprobs are the engine's, the base's are computed here. None
    without answers, or for a base that is not a folder here.
    """
    if not answers or not base.is_dir():
        return None
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    total, tokens = 0.0, 0
    with torch.inference_mode():
        for one in answers:
            logits = model(torch.tensor([[*one.prompt_ids, *one.ids]])).logits[0, len(one.prompt_ids) - 1 : -1]
            own = torch.log_softmax(logits / one.temperature, -1).gather(1, torch.tensor(one.ids)[:, None])[:, 0]
            total += float((torch.tensor(one.logprobs) - own).sum())
            tokens += len(one.ids)
    return {"nats_a_token": round(total / tokens, 4), "answers": len(answers), "tokens": tokens}


def _point(step: Mapping[str, Any], sampled: Sequence[Attempt]) -> dict[str, Any]:
    own = [len(one.ids) for one in sampled if one.step == step["step"]]
    return {
        "step": step["step"],
        "sampled_by": step["sampled_by"],
        "success": _round(step["success"]),
        "reward": _round(step["reward"]),
        "tokens": _mean(own),
        "logprob_gap_max": step["metrics"].get("logprob_gap_max"),
        "seconds": {name: round(value, 1) for name, value in step["seconds"].items()},
    }


def _sum(sessions: Sequence[Mapping[str, Any]], key: str, divisor: float) -> float | None:
    values = [one[key] for one in sessions]
    return None if None in values else round(sum(values) / divisor, 1)


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def table(found: Iterable[Mapping[str, Any]]) -> str:
    """Return the committed results as a table of the README."""
    head = ("run", "versions live", "trained tokens", "largest |Δlogprob|", "tokens a second", "minutes", "CPU minutes")
    more = ("trained kinds, before → after", "untrained kinds, before → after")
    rows = [
        [
            f"{'`SHORT=1`' if one['short'] else 'full'}, seed {one['seed']}",
            str(one["versions_live"]),
            str(one["trained_tokens"]),
            f"{one['logprob_gap_max']:.1e}",
            str(one["tokens_per_s"]),
            str(one["minutes"]),
            "not known" if one["cpu_minutes"] is None else str(one["cpu_minutes"]),
            *(_rise(one["held_out"][name]) for name in ("trained", "untrained")),
        ]
        for one in found
    ]
    return markdown((*head, *more), rows)


def _rise(part: Mapping[str, Any]) -> str:
    before, after = part[BEFORE], part[AFTER]
    if before["success"] is None or after["success"] is None:
        return "not measured"
    return " → ".join(f"{one['success']:.1%} ({one['low']:.1%}–{one['high']:.1%})" for one in (before, after))


def main() -> None:
    """Write the table of the committed results into the README."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(COMMITTED.glob("*.json"))]
    README.write_text(MARKS.put(README.read_text("utf-8"), table(found)), encoding="utf-8")


if __name__ == "__main__":
    main()
