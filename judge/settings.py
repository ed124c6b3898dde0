"""The `[judge]` section of hone.toml: the judge model, the rewards, limits and retries.

Owns: the settings of this package, and the contradictions that it rejects. Refuses: sub-scores and panels, each alone
(`judge.panel_settings`). Imports only pydantic, other settings and `recorder.base.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from judge.panel_settings import (
    BASE,
    MOST_REQUESTS,
    NAME,
    Combine,
    MemberSettings,
    StrongSettings,
    Subscores,
    refuse_reaching_base,
)
from recorder.base.function_paths import is_function_path
from recorder.base.rules import Rule, form_error

RUBRIC = """\
- A trajectory that achieves its goal scores clearly higher than one that does not.
- Of two that achieve it, the one with fewer detours, mistakes and needless steps scores somewhat higher.
- One that comes close to the goal scores higher than one that does not, but keeps well below those that achieve it.
- What the trajectory claims counts only where its own tool results or the user's messages support it.
- Small differences get small gaps; trajectories of equal worth get equal scores."""

DEFAULT: Final = "default"  # the recipe at the top of [judge]
WHOLE: Final = "reward"  # the part that combines all others; `recorder.queue.judging.scores` writes it
LIMIT: Final = 1e6  # largest size of a part's value: sums and differences of rewards stay exact enough, and finite
# Request parameters that Hone sets, or relies on when it reads the answer, by every name that LiteLLM knows.
SET_BY_HONE: Final = frozenset(
    {
        *("model", "messages", "api_base", "base_url", "api_key", "temperature", "max_tokens", "max_completion_tokens"),
        *("timeout", "request_timeout", "num_retries", "max_retries", "drop_params", "response_format", "stream", "n"),
    }
)


def base_model_name(alias: str) -> str:
    """The name of an alias's version 0."""
    return f"{alias}@0"


# The kinds that ask `judge.model` about one trajectory at a time.
ONE_BY_ONE: Final = frozenset({"rubric", "follow_up", "turns"})

Effect = Literal["score", "penalty", "veto"]
Missing = Literal["exclude", "drop_part", "hold"]


class RewardSettings(BaseModel):
    """One part of the reward: a table of `[[judge.rewards]]`."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["ruler", "function", "feedback", "rule", "rubric", "follow_up", "turns"]
    """`ruler`: the judge model ranks the group. `function`: your code. `feedback`: what users sent through the API.
    `rule`: a check by Hone itself, with the value 1 where the rule is broken, else 0. `rubric`: the judge model decides
    which criteria of the scenario (`rubric = […]`) each trajectory meets. `follow_up`: what came next after its
    answers, such as the user's next message; rules decide, else the judge model. `turns`: the judge model gives each
    turn of a trajectory a value and a line of critique."""
    name: str = ""
    """Name of the part in scores; for feedback, the feedback's name. Default: `ruler`, the rule, the function's name.
    `reward` is the name of the whole: a function called so has its class's or its module's name."""
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Its share of the reward, relative to the other parts. 0: it is measured and stored, and does not change the
    reward. Values of turns by kind `turns` count nevertheless (`trainer.turn_weight`)."""
    function: str = ""
    """`package.module:function`, called with a trajectory; returns a number, or a dict with `score`."""
    rule: Rule | None = None
    """What must hold: the last answer is JSON of a schema, or matches a regular expression (`regex`, anywhere in it);
    tools that must or must not be called; a maximum number of model answers, tool calls or sampled tokens."""
    value: JsonValue = None
    """Argument of the rule: a JSON schema, an expression, a list of tool names, or a number."""
    evidence: bool = False
    """Rubrics: a criterion counts as met only with a quote from the response. A reply that quotes other text is
    refused."""
    effect: Effect = "score"
    """`score`: the value enters the weighted mean. `penalty`: value × weight is subtracted from the mean. `veto`: a
    trajectory with a value above 0 gets at most 0, and at most the lowest reward in its group without a veto."""
    low: float = Field(0.0, ge=-LIMIT, le=LIMIT, allow_inf_nan=False)
    """Smallest valid value of the part. A lower value counts as missing, with its reason. A penalty is never below 0.
    """
    high: float = Field(1.0, ge=-LIMIT, le=LIMIT, allow_inf_nan=False)
    """Largest valid value of the part. A higher value counts as missing, with its reason."""
    missing: Missing | None = None
    """What happens where this part is missing, as in `judge.missing`, whose value is the default."""

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, given: Any) -> Any:
        if isinstance(given, dict) and "penalty" in given:
            raise ValueError('`penalty` is now `effect`: write effect = "penalty" where it was true')
        return given

    @model_validator(mode="after")
    def _bounded(self) -> RewardSettings:
        if self.low >= self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}")
        if self.kind in ("ruler", "rule", "rubric", "follow_up", "turns") and (self.low, self.high) != (0.0, 1.0):
            raise ValueError(f"a {self.kind} is worth 0 to 1: it takes neither `low` nor `high`")
        if self.effect == "score":
            return self
        if self.kind == "ruler":
            raise ValueError(f"RULER's scores compare; they cannot be a {self.effect}")
        if self.kind == "follow_up":
            raise ValueError(f"a follow-up is worth more the better it is; it cannot be a {self.effect}")
        if self.kind == "turns":
            raise ValueError(f"values of turns are higher the better the turns are; they cannot be a {self.effect}")
        if self.low < 0:
            raise ValueError(f"a {self.effect} is never below 0, so `low` cannot be {self.low:g}")
        if self.missing == "drop_part":
            raise ValueError(f"an unchecked {self.effect} never counts as kept: `missing` must be 'exclude' or 'hold'")
        return self

    @model_validator(mode="after")
    def _complete(self) -> RewardSettings:
        if (self.kind == "function") != bool(self.function):
            verb = "takes no" if self.function else "needs"
            raise ValueError(f"a reward of kind {self.kind!r} {verb} `function`")
        if self.function and not is_function_path(self.function):
            raise ValueError(f"function {self.function!r} is not of the form `package.module:function`")
        if self.evidence and self.kind != "rubric":
            raise ValueError(f"a reward of kind {self.kind!r} takes no `evidence`: only a rubric's verdicts can quote")
        if self.kind == "feedback" and not self.name:
            raise ValueError("a reward of kind 'feedback' needs `name`: the feedback's name")
        if (self.kind == "rule") != (self.rule is not None):
            raise ValueError(f"a reward of kind {self.kind!r} {'takes no' if self.rule else 'needs'} `rule`")
        if self.rule is None and self.value is not None:
            raise ValueError("only a reward of kind 'rule' takes a `value`")
        if self.rule is not None and self.effect == "score":
            raise ValueError('a rule is kept or broken: it needs effect = "veto" or "penalty"')
        # `judge.scoring.setup` checks before judging whether an expression or a schema is valid
        if self.rule is not None and (wrong := form_error(self.rule, self.value)):
            raise ValueError(f"`value` of the rule {self.rule!r} {wrong}")
        self.name = self.name or self.rule or _named_after(self.function) or self.kind
        if self.name == WHOLE:
            feedback = ", and send the feedback under that name" if self.kind == "feedback" else ""
            raise ValueError(
                f"{WHOLE!r} cannot name a part: it is the name of the whole reward. Set another name, such as "
                f'name = "quality"{feedback}'
            )
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r:.80} cannot name a part: use 1 to 64 of A-Z a-z 0-9 _ -")
        return self


def _named_after(function: str) -> str:
    """The part's name for `package.module:Class.method`: the last of these words that can name a part; else empty."""
    words = reversed(function.replace(":", ".").split("."))
    return next((word for word in words if word != WHOLE and NAME.fullmatch(word)), "")


class FeedbackSettings(BaseModel):
    """How long the judge waits for feedback."""

    model_config = ConfigDict(extra="forbid")

    wait_s: float = Field(0.0, ge=0)
    """After a group's last trajectory ended, the judge waits this long for feedback before it scores the group."""

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, given: Any) -> Any:
        if isinstance(given, dict) and "missing" in given:
            raise ValueError(
                "`missing` is now `judge.missing` (or `missing` of one reward): 'exclude', 'drop_part' (nearest to the "
                "old 'renormalise') or 'hold'"
            )
        return given


def _distinct(rewards: list[RewardSettings]) -> list[RewardSettings]:
    names = [reward.name for reward in rewards]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two rewards are called {doubled[0]!r}: give them a `name` each")
    if sum(reward.kind == "ruler" for reward in rewards) > 1:
        raise ValueError("there is one judge model, so RULER can be one reward only")
    if rewards and not any(reward.weight > 0 and reward.effect == "score" for reward in rewards):
        raise ValueError("no reward has a weight above 0, so no trajectory could get a reward")
    return rewards


Rewards = Annotated[list[RewardSettings], AfterValidator(_distinct)]


class RecipeSettings(BaseModel):
    """A judge recipe: `[judge.recipes.NAME]`. What it does not set is taken from the top of [judge]."""

    model_config = ConfigDict(extra="forbid")

    rewards: Rewards | None = None
    """The parts of the reward, instead of `judge.rewards`."""
    rubric: str | None = None
    """What makes a trajectory good, for the judge's prompt, instead of `judge.rubric`."""
    missing: Missing | None = None
    """What happens where a trajectory lacks a part, instead of `judge.missing`."""


class JudgeSettings(BaseModel):
    """How groups are judged and scored."""

    model_config = ConfigDict(extra="forbid")

    model: str = ""
    """The judge's LiteLLM name (`openai/gpt-5-mini`, `anthropic/claude-…`). `base`: version 0 of the group's alias
    (`NAME@0`), through a running proxy. Empty: no model judges."""
    api_base: str | None = None
    """URL of the judge's API, if it is not the provider's own. No key from the environment is ever sent to it."""
    api_key: SecretStr | None = None
    """Key for the judge. Default: the provider's own variable (`OPENAI_API_KEY`, …), unless `api_base` is set."""
    temperature: float = Field(0.0, ge=0, le=2)
    """Sampling temperature of the judge. It is not sent to providers that accept none."""
    extra: dict[str, JsonValue] = {}
    """Further request parameters by LiteLLM's names (`seed`, `reasoning_effort` …), except those that Hone sets."""
    timeout_s: float = Field(120.0, gt=0)
    """Time limit of one request to the judge."""
    max_tokens: int = Field(4096, gt=0)
    """Most tokens of the judge's answer, reasoning included."""
    retries: int = Field(2, ge=0)
    """How often a request is retried at once when the judge is unreachable, overloaded or broken."""
    retry_wait_s: float = Field(1.0, gt=0)
    """Pause before the first retry. It doubles each time."""
    backoff_s: float = Field(5.0, gt=0)
    """A group that could not be scored is tried again after this long. The pause doubles each time."""
    backoff_max_s: float = Field(600.0, gt=0)
    """Longest such pause."""
    max_context_chars: int = Field(240_000, ge=4_000)
    """Most characters of one group in the judge's prompt. Longer groups are shortened in the middle of tool outputs."""
    requests_per_minute: int | None = Field(None, gt=0)
    """Most requests a minute from one process to the judge, including repairs and repeats. Default: no limit."""
    tokens_per_minute: int | None = Field(None, gt=0)
    """Most tokens a minute from one process, prompts and answers together. A single larger request is sent alone.
    Default: no limit."""
    rubric: str = RUBRIC
    """What makes a trajectory good, for the judge's prompt."""
    subscores: Subscores = []
    """Sub-scores that RULER requests for each trajectory, instead of one score. The score is their weighted mean.
    Default: none."""
    panel: list[MemberSettings] = []
    """Judges that RULER asks, instead of `judge.model`, which still judges rubrics. Default: that model alone."""
    repeats: int = Field(1, ge=1)
    """How often RULER asks each judge about one group. The order of the trajectories differs each time."""
    combine: Combine = "mean"
    """How RULER's replies about one group are combined. Replies have the weights of their judges."""
    quorum: int | None = Field(None, gt=0)
    """Fewest readable replies with which a group is scored. Default: more than half of those requested."""
    min_agreement: float | None = Field(None, ge=-1, le=1)
    """Lowest agreement of the replies (mean Kendall's tau-b over pairs of replies) with which a group is scored. Below
    it, the group waits for a person. It needs two replies. Default: none."""
    strong: StrongSettings | None = None
    """A better judge that also judges some groups. It scores while the cheaper judge agrees with it too little."""
    rewards: Rewards = Field(default_factory=list)
    """The parts of the reward. Default: RULER alone, if a model or a panel is set."""
    missing: Missing | None = None
    """What happens where a trajectory lacks a part. `exclude`: the trajectory gets no reward. `drop_part`: the part is
    dropped for its whole group, unless the trajectory is at fault (a function failed on it): then it gets no reward.
    `hold`: its group waits, and is tried again. Default: `exclude`; `drop_part` for feedback and follow-ups that enter
    the mean."""
    recipes: dict[str, RecipeSettings] = {}
    """Further judge recipes by name. An alias or a campaign selects one with `judge_recipe`. The top of [judge] is the
    recipe `default`."""
    feedback: FeedbackSettings = Field(default_factory=FeedbackSettings)
    """How long the judge waits for feedback."""
    follow_up_wait_s: float = Field(900.0, ge=0)
    """Rewards of kind `follow_up`: after a group's last trajectory ended, the judge waits this long for what users
    write next, before it scores the group. What comes later changes no reward."""
    python: Path | None = None
    """The Python that runs reward functions. Default: the one that runs Hone."""
    folder: Path = Path()
    """The folder that reward functions are imported from and run in. Default: where Hone was started."""
    function_timeout_s: float = Field(30.0, gt=0)
    """Time limit of one call of a reward function. After that its process is killed."""
    function_start_s: float = Field(60.0, gt=0)
    """Time limit for importing the reward functions."""
    function_env: list[str] = []
    """Environment variables that reward functions receive, beside those that any Python program needs (PATH, HOME …).
    """
    function_processes: int = Field(1, gt=0)
    """How many processes run reward functions in parallel. Recipes with other functions have as many of their own."""
    concurrency: int = Field(8, gt=0)
    """How many groups one worker scores at once, and the most open requests that it has at the judge."""

    _of_aliases: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _reads_comments: bool = PrivateAttr(True)

    @field_validator("recipes")
    @classmethod
    def _named(cls, recipes: dict[str, RecipeSettings]) -> dict[str, RecipeSettings]:
        if DEFAULT in recipes:
            raise ValueError(f"{DEFAULT!r} is the recipe at the top of [judge]: give this one another name")
        if wrong := [name for name in recipes if not NAME.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r:.80} cannot name a recipe: use 1 to 64 of A-Z a-z 0-9 _ -")
        return recipes

    @field_validator("extra")
    @classmethod
    def _further(cls, extra: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if ours := sorted(SET_BY_HONE & extra.keys()):
            raise ValueError(
                f"{', '.join(ours)}: Hone sets that itself: remove it, and see the other settings of [judge]"
            )
        return extra

    @model_validator(mode="after")
    def _askable(self) -> JudgeSettings:
        asked = self.requests
        if asked > MOST_REQUESTS:
            raise ValueError(
                f"{asked} requests about one group (panel x repeats) are too many: {MOST_REQUESTS} at most"
            )
        if self.quorum is not None and self.quorum > asked:
            raise ValueError(f"a quorum of {self.quorum} is never reached: {asked} replies are requested")
        if self.min_agreement is not None and (asked < 2 or self.needed < 2):
            raise ValueError(
                "`min_agreement` compares replies: it needs a [[judge.panel]] or `repeats`, and a quorum of 2"
            )
        return self

    @model_validator(mode="after")
    def _has_two_judges(self) -> JudgeSettings:
        refuse_reaching_base(self.model, self.api_base, self.api_key)
        if self.strong is None:
            return self
        if not self.members:
            raise ValueError("`strong` has no judge to check: set judge.model, or name a [[judge.panel]]")
        cheap = {(one.model, one.api_base) for one in self.members} | {(self.model, self.api_base)}
        if (self.strong.model, self.strong.api_base) in cheap:
            raise ValueError(
                f"the strong judge {self.strong.model!r} is also the judge that it checks: name another model"
            )
        return self

    @property
    def members(self) -> list[MemberSettings]:
        """The judges that RULER asks: the panel, else `model`; empty: none."""
        if self.panel or not self.model:
            return list(self.panel)
        return [MemberSettings(model=self.model, api_base=self.api_base, api_key=self.api_key)]

    @property
    def requests(self) -> int:
        """The number of RULER's requests about one group, without repairs."""
        return max(1, len(self.panel)) * self.repeats

    @property
    def needed(self) -> int:
        """The number of these replies that must be readable."""
        return self.requests // 2 + 1 if self.quorum is None else self.quorum

    @property
    def ranked_by(self) -> str:
        """The names of the models that RULER asks, for people."""
        return " + ".join(dict.fromkeys(member.model for member in self.members))

    def as_member(self, member: MemberSettings) -> JudgeSettings:
        """These settings with one member of the panel as the judge."""
        own = {"model": member.model, "api_base": member.api_base, "api_key": member.api_key}
        return self.model_copy(update=own)

    def by_strong(self) -> JudgeSettings | None:
        """These settings with the strong judge alone as the judge, asked as often as `repeats` says; None: none is set.

        Settings of a panel do not apply to it: `quorum`, and `min_agreement` if it is asked only once.
        """
        if self.strong is None:
            return None
        strong = self.strong
        agreeing = self.min_agreement if self.repeats > 1 else None
        alone: dict[str, Any] = {"panel": [], "quorum": None, "min_agreement": agreeing, "strong": None}
        reached = {"model": strong.model, "api_base": strong.api_base, "api_key": strong.api_key}
        return self.model_copy(update={**alone, **reached})

    @property
    def asks_base(self) -> bool:
        """Whether an alias's base is one of the judges."""
        return BASE in {self.model, *(member.model for member in self.panel)}

    def of_alias(self, alias: str | None) -> JudgeSettings:
        """These settings with an alias's base by its name (`NAME@0`) instead of `base`."""
        if alias is None or not self.asks_base:
            return self
        named = [
            one.model_copy(update={"model": base_model_name(alias)}) if one.model == BASE else one for one in self.panel
        ]
        return self.model_copy(
            update={"model": base_model_name(alias) if self.model == BASE else self.model, "panel": named}
        )

    def for_aliases(self, recipes: Mapping[str, str]) -> JudgeSettings:
        """These settings with the recipe that judges each alias's trajectories (`aliases.NAME.judge_recipe`)."""
        settings = self.model_copy()
        settings._of_aliases = dict(recipes)
        return settings

    def without_comments(self) -> JudgeSettings:
        """These settings with follow-ups read without comments of feedback, which may state a label."""
        settings = self.model_copy()
        settings._reads_comments = False
        return settings

    @property
    def reads_comments(self) -> bool:
        """Whether comments of feedback are follow-ups."""
        return self._reads_comments

    def recipe_of(self, alias: str | None, of_campaign: str | None = None) -> str:
        """The name of the recipe that judges trajectories: their campaign's, else their alias's, else `default`."""
        return of_campaign or self._of_aliases.get(alias or "") or DEFAULT

    def known_recipes(self) -> list[str]:
        """The names of all recipes."""
        return [DEFAULT, *self.recipes]

    def by_recipe(self, name: str) -> JudgeSettings:
        """These settings with those of the recipe `name`. Raises KeyError."""
        if name == DEFAULT:
            return self
        recipe = self.recipes[name]
        own = {field: getattr(recipe, field) for field in RecipeSettings.model_fields}
        return self.model_copy(update={field: value for field, value in own.items() if value is not None})

    def in_force(self) -> list[RewardSettings]:
        """The parts of the reward that apply: those named, else RULER if a model is set, else none."""
        if self.rewards or not self.members:
            return list(self.rewards)
        return [RewardSettings(kind="ruler")]

    def is_set(self) -> bool:
        """Whether there is anything to judge by: a model, a part of a reward, or a recipe."""
        return bool(self.in_force() or self.recipes)

    def when_missing(self, reward: RewardSettings) -> Missing:
        """What happens if a part is missing. A penalty or veto is never dropped: unchecked does not count as kept."""
        wanted = reward.missing or self.missing
        if reward.effect != "score":
            return "hold" if wanted == "hold" else "exclude"
        return wanted or ("drop_part" if reward.kind in ("feedback", "follow_up") else "exclude")
