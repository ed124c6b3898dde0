"""The request of an evaluation: versions, scenarios, attempts for each, measures; and its row in the store.

Owns: resolving names, rejecting what cannot be compared as early as the settings allow, and finding an unfinished
evaluation that the same command resumes. Two evaluations are the same if their versions, scenarios, attempts, success
and measures are. Refuses: running attempts (`trainer.evaluation.runner`), leases and marks (`trainer.campaign.record`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from judge.settings import RewardSettings
from recorder.base.function_paths import is_function_path
from recorder.queue import campaigns
from recorder.queue.campaigns import EVALUATES, CampaignView, Split
from recorder.queue.groups.lookup import BY_FUNCTION
from recorder.registry.aliases import AliasView
from recorder.states import CampaignState
from recorder.store.database import Project, Store
from recorder.views.campaigns.events import CampaignMeasure
from trainer.campaign.record import new_scenarios, require_agent
from trainer.campaign_settings import BASE, CampaignSettings
from trainer.errors import CampaignError
from trainer.measures import campaign_measure
from trainer.measures.arms import MOST, Arm
from trainer.progress import Notice, Progress
from trainer.tasks import scenarios
from trainer.tasks.scenarios import Scenario

LIVE: Final = "live"  # the version that is live when the evaluation begins
# The settings that decide an attempt and its value. With other values it is another evaluation.
SHAPE: Final = (
    "agent", "replay", "max_tokens", "temperature", "attempt_timeout_s", "on_agent_error", "success",
    "success_threshold",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """An evaluation: each version (by name) attempts each task a number of times in one group, one group a seed."""

    settings: CampaignSettings
    names: Sequence[str]
    tasks: Sequence[Scenario]
    attempts: int
    seeds: int
    file: Path
    fresh: bool = False  # start another, even if the same one is unfinished

    @property
    def total(self) -> int:
        """The number of attempts."""
        return len(self.names) * len(self.tasks) * self.attempts * self.seeds


@dataclass(frozen=True, slots=True)
class EvaluationMeasures:
    """The measures of a version: success rate, mean reward, wins against the first version's attempts."""

    success: bool
    reward: bool
    wins: bool


def plan_evaluation(
    settings: CampaignSettings,
    names: Sequence[str],
    file: Path,
    *,
    attempts: int,
    seeds: int,
    fresh: bool = False,
    providers: Collection[str] = (),
) -> EvaluationRequest:
    """Check the request, and read the file.

    Raises `CampaignError` for what cannot be compared, and `ScenariosInvalid`.
    """
    require_agent(settings)
    if not names:
        raise CampaignError("no version is named: name those to compare with --versions, as in live,base")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise CampaignError(f"the version {twice!r} is named twice (--versions)")
    for name in names:
        if name not in (LIVE, BASE) and name not in providers and _numbered(name) is None:
            raise CampaignError(f"there is no version {name!r} (--versions): {_known(providers)}")
    if attempts > MOST:
        raise CampaignError(f"{attempts} attempts at a scenario are too many: at most {MOST}; --seeds repeats them")
    return EvaluationRequest(settings, tuple(names), scenarios.read_scenarios(file), attempts, seeds, file, fresh)


def has_success_function(settings: CampaignSettings) -> bool:
    """Whether a function measures success. Then nothing else is measured, and no judge is asked."""
    return settings.success is not None and is_function_path(settings.success)


def choose_measures(settings: CampaignSettings, rewards: Sequence[RewardSettings], versions: int) -> EvaluationMeasures:
    """The measures that are possible for this number of versions. Raises `CampaignError` if there is none."""
    if has_success_function(settings):
        return EvaluationMeasures(success=True, reward=False, wins=False)
    if not rewards:
        raise CampaignError(
            "nothing can be measured: no judge rewards these attempts. Set judge.model or [[judge.rewards]], or "
            "--success to a function."
        )
    by_reward = campaign_measure.choose_measure(settings.model_copy(update={"success": None}), rewards, validated=True)
    found = EvaluationMeasures(
        settings.success is not None,
        by_reward is CampaignMeasure.REWARD,
        by_reward is CampaignMeasure.WINS and versions > 1,
    )
    if not (found.success or found.reward or found.wins):
        alone = by_reward is CampaignMeasure.WINS
        why = "of one version alone" if alone else "where RULER is a part of the reward beside others"
        raise CampaignError(
            f"nothing can be measured {why}: RULER's scores compare the trajectories of one group; their mean over "
            "groups is no measure. Set --success (a function, or another part's "
            f"name){', or name a second version' * alone}."
        )
    return found


def resolve_names(
    names: Sequence[str], alias: str, live: str, known: Collection[str], providers: Collection[str]
) -> list[Arm]:
    """The arm of each name, in order. `live`: the name of the live version; `known`: all versions of the alias.

    Raises `CampaignError` for an unknown version, and if two names mean the same one.
    """
    models = {LIVE: live, BASE: f"{alias}@0"}
    found: dict[str, str] = {}
    for name in names:
        model = name if name in providers else models.get(name, name)
        if model not in known and model not in providers:
            raise CampaignError(f"there is no version {name!r} of {alias!r} (--versions): {_known(providers)}")
        if model in found:
            raise CampaignError(f"{found[model]!r} and {name!r} are the same version, {model}: name it once")
        found[model] = name
    return [Arm(name, model, place) for place, (model, name) in enumerate(found.items())]


def evaluation_identity(asked: EvaluationRequest, arms: Sequence[Arm], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of an evaluation as its row stores it: the same command finds an unfinished one by it."""
    shape = asked.settings.model_dump(mode="json")
    return {
        "versions": [[arm.name, arm.model] for arm in arms],
        "attempts": asked.attempts,
        "seeds": asked.seeds,
        "scenarios": _digest("\n".join(map(scenarios.scenario_line, asked.tasks))),
        "recipe": _digest(json.dumps(recipe, sort_keys=True)),
        **{key: shape[key] for key in SHAPE},
        "reward_recipe": shape["judge_recipe"],  # under the key by which unfinished evaluations are stored
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _numbered(name: str) -> str | None:
    """The alias of a name like `helpdesk@3`."""
    alias, at, number = name.rpartition("@")
    return alias if at and number.isdigit() else None


def _known(providers: Collection[str]) -> str:
    others = f", a model of [[proxy.models]] ({', '.join(sorted(providers))})" if providers else ""
    return f"name {LIVE}, {BASE}, NAME@N as `hone versions` lists them{others}"


PART: Final[Split] = "test"  # which part of a campaign's scenarios these count as: never trained on
# Why an evaluation ended: it is complete, or its attempts do not reflect its versions.
COMPARED: Final = "compared"
SPOILT: Final = "spoilt"


async def begin_or_find_evaluation(
    store: Store, alias: AliasView, asked: EvaluationRequest, identity: dict[str, Any], progress: Progress
) -> CampaignView:
    """The row of an evaluation with this identity (`evaluation_identity`), with its scenarios."""
    settings = {**asked.settings.model_dump(mode="json"), EVALUATES: identity}
    if has_success_function(asked.settings):
        settings[BY_FUNCTION] = True
    unfinished = [] if asked.fresh else await campaigns.unfinished_evaluations(store, alias.id)
    row = next((one for one in unfinished if one.settings[EVALUATES] == identity), None)
    if row is None:
        row = await campaigns.create_campaign(
            Project(store, alias.project_id), alias.id, f"eval:{asked.file.stem}", settings
        )
    else:
        await campaigns.set_settings(store, row.id, settings)
        progress.tell(Notice(f"resuming the evaluation {row.id}, which was {row.state}"))
    await campaigns.add_scenarios(
        store, row.id, PART, new_scenarios(asked.tasks)
    )  # an earlier process may have been killed before this
    return row


async def evaluation_tasks(store: Store, row: CampaignView) -> Sequence[campaigns.Scenario]:
    """An evaluation's scenarios, in the file's order."""
    return await campaigns.list_scenarios(store, row.id, PART)


async def end_evaluation(store: Store, row: CampaignView, reason: str) -> None:
    """End an evaluation: the same command then begins another."""
    await campaigns.finish_campaign(store, row.id, CampaignState.FINISHED, reason)
