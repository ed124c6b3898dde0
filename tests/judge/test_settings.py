"""The judge's settings: defaults that work, contradictions refused."""

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from judge.errors import JudgeMisconfigured
from judge.scoring.reward_parts import recipe_hash
from judge.scoring.setup import check_settings
from judge.settings import WHOLE, JudgeSettings, RewardSettings
from recorder.base.rules import Rule
from recorder.queue.judging.scores import REWARD


def of(**values: Any) -> JudgeSettings:
    return JudgeSettings.model_validate(values)


def test_a_model_alone_means_ruler() -> None:
    assert [(r.kind, r.name, r.weight) for r in of(model="openai/judge").in_force()] == [("ruler", "ruler", 1.0)]


def test_named_rewards_are_the_only_ones() -> None:
    rewards = of(model="openai/judge", rewards=[{"kind": "function", "function": "a.b:right"}]).in_force()
    assert [(r.kind, r.name) for r in rewards] == [("function", "right")]


@pytest.mark.parametrize(
    ("rewards", "why"),
    [
        ([{"kind": "function"}], "needs `function`"),
        ([{"kind": "ruler", "function": "a:b"}], "takes no `function`"),
        ([{"kind": "function", "function": "a.b"}], "package.module:function"),
        ([{"kind": "function", "function": "a:b; import os"}], "package.module:function"),
        ([{"kind": "feedback"}], "needs `name`"),
        ([{"kind": "ruler", "effect": "penalty"}], "cannot be a penalty"),
        ([{"kind": "ruler", "effect": "veto"}], "cannot be a veto"),
        ([{"kind": "function", "function": "a:x", "penalty": True}], r"`penalty` is now `effect`"),
        ([{"kind": "function", "function": "a:x", "effect": "fine"}], "'score', 'penalty' or 'veto'"),
        ([{"kind": "function", "function": "a:x", "low": 1}], "low 1 is not below high 1"),
        ([{"kind": "function", "function": "a:x", "high": float("inf")}], "finite|less"),
        ([{"kind": "function", "function": "a:x", "high": 2e6}], "less than or equal to 1000000"),
        ([{"kind": "function", "function": "a:x", "low": -1, "effect": "penalty"}], "never below 0"),
        ([{"kind": "ruler", "high": 10}], "neither `low` nor `high`"),
        ([{"kind": "rule", "rule": "regex", "value": "x", "effect": "veto", "high": 2}], "neither `low` nor `high`"),
        ([{"kind": "ruler", "missing": "renormalise"}], "'exclude', 'drop_part' or 'hold'"),
        ([{"kind": "function", "function": "a:x", "effect": "veto", "missing": "drop_part"}], "'exclude' or 'hold'"),
        ([{"kind": "ruler", "name": "reward"}], 'cannot name a part.* such as name = "quality"'),
        ([{"kind": "function", "function": "a:b", "name": "reward"}], 'cannot name a part.* such as name = "quality"'),
        ([{"kind": "feedback", "name": "reward"}], 'name = "quality", and send the feedback under that name'),
        ([{"kind": "function", "function": f"{at}.checks:reward"} for at in "ab"], "two rewards are called 'checks'"),
        ([{"kind": "ruler", "name": "a.b"}], "cannot name a part"),
        ([{"kind": "ruler", "weight": -1}], "greater than or equal to 0"),
        ([{"kind": "ruler", "weight": float("nan")}], "finite|greater"),
        ([{"kind": "ruler"}, {"kind": "ruler", "name": "two"}], "one reward only"),
        ([{"kind": "function", "function": "a:x"}, {"kind": "function", "function": "b:x"}], "called 'x'"),
        ([{"kind": "ruler", "weight": 0}], "weight above 0"),
        ([{"kind": "function", "function": "a:x", "effect": "penalty"}], "weight above 0"),
        ([{"kind": "dice"}], "'ruler', 'function', 'feedback', 'rule', 'rubric', 'follow_up' or 'turns'"),
        ([{"kind": "rule", "effect": "veto"}], "needs `rule`"),
        ([{"kind": "ruler", "rule": "regex"}], "takes no `rule`"),
        ([{"kind": "ruler", "value": 1}], "only a reward of kind 'rule' takes a `value`"),
        ([{"kind": "rule", "rule": "max_turns", "value": 3}], 'needs effect = "veto" or "penalty"'),
        ([{"kind": "ruler", "wait": 1}], "Extra inputs"),
    ],
)
def test_rewards_that_cannot_work_are_refused(rewards: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        of(model="openai/judge", rewards=rewards)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("checks:polite", "polite"),
        ("checks:reward", "checks"),
        ("my.checks:reward", "checks"),
        ("my.checks:Polite.reward", "Polite"),
        ("my.checks:Polite.score", "score"),
        ("my.checks:höflich", "checks"),
        ("reward:reward", "function"),
        ("checks:" + "x" * 65, "checks"),
    ],
)
def test_a_functions_part_has_a_name_whatever_the_function_is_called(function: str, name: str) -> None:
    assert [reward.name for reward in of(rewards=[{"kind": "function", "function": function}]).rewards] == [name]


def test_the_name_of_the_whole_reward_is_the_one_that_scores_have() -> None:
    assert WHOLE == REWARD


RULED: list[tuple[str, Any]] = [
    ("regex", r"^\d+$"),
    ("answer_schema", {"type": "object"}),
    ("forbidden_tools", ["refund"]),
    ("required_tools", ["find_order", "close"]),
    ("max_turns", 0),
    ("max_tool_calls", 3),
    ("max_tokens", 2048),
]


@pytest.mark.parametrize(("rule", "value"), RULED)
def test_rules_that_can_be_checked(rule: str, value: Any) -> None:
    rules = [{"kind": "rule", "rule": rule, "value": value, "effect": "veto"}]
    settings = of(model="openai/judge", rewards=[{"kind": "ruler"}, *rules])
    assert [reward.name for reward in settings.rewards] == ["ruler", rule]


@pytest.mark.parametrize(
    ("rule", "value", "why"),
    [
        ("regex", 7, "must be a regular expression, not 7"),
        ("answer_schema", "schema.json", r"must be a JSON schema \(a table\)"),
        ("forbidden_tools", [], "must be a list of tool names"),
        ("required_tools", "refund", "must be a list of tool names, not 'refund'"),
        ("forbidden_tools", ["refund", 1], "must be a list of tool names"),
        ("max_turns", -1, "rewards.1(.|\n)*`value` of the rule 'max_turns' must be a whole number from 0, not -1"),
        ("max_tokens", True, "must be a whole number"),
        ("max_tool_calls", 1.5, "must be a whole number"),
        ("max_turns", None, "must be a whole number"),
        ("politeness", 1, "'answer_schema', 'forbidden_tools'"),
    ],
)
def test_rules_that_cannot_be_checked_are_refused_at_start(rule: str, value: Any, why: str) -> None:
    rules = [{"kind": "rule", "rule": rule, "value": value, "effect": "penalty"}]
    with pytest.raises(ValidationError, match=why):
        of(model="openai/judge", rewards=[{"kind": "ruler"}, *rules])


@pytest.mark.parametrize(
    ("rule", "value", "why"),
    [
        ("regex", "(", r"^judge\.rewards\[1\]\.value of the rule 'regex' is not a regular expression: missing"),
        ("answer_schema", {"type": "dict"}, "is not a JSON schema: type: 'dict' is not valid"),
        ("answer_schema", {"properties": {"a": {"pattern": "("}}}, r"properties\.a\.pattern: '\(' is not a 'regex'"),
    ],
)
def test_expressions_and_schemas_that_are_none_are_refused_before_anything_is_judged(
    rule: str, value: Any, why: str
) -> None:
    rules = [{"kind": "rule", "rule": rule, "value": value, "effect": "veto"}]
    with pytest.raises(JudgeMisconfigured, match=why):
        check_settings(of(model="openai/judge", rewards=[{"kind": "ruler"}, *rules]))


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        (
            {"rewards": [{"kind": "rule", "rule": "regex", "value": "(", "effect": "veto"}, {"kind": "ruler"}]},
            r"^judge\.recipes\.strict\.rewards\[0\]\.value of the rule 'regex' is not a regular expression",
        ),
        ({"rewards": [{"kind": "ruler"}]}, r"^judge\.recipes\.strict\.rewards has RULER but no judge model"),
        ({"rubric": "brief"}, r"^judge\.recipes\.strict has no rewards"),
    ],
)
def test_a_recipe_by_which_nobody_could_judge_is_refused_by_its_key(recipe: dict[str, Any], why: str) -> None:
    with pytest.raises(JudgeMisconfigured, match=why):
        check_settings(of(recipes={"strict": recipe}))


@pytest.mark.parametrize(
    ("recipes", "why"),
    [
        ({"default": {}}, "'default' is the recipe at the top of"),
        ({"a b": {}}, "'a b' cannot name a recipe"),
        ({"a": {"rewards": [{"kind": "ruler", "weight": 0}]}}, "no reward has a weight above 0"),
        ({"a": {"model": "openai/judge"}}, "Extra inputs are not permitted"),
    ],
)
def test_recipes_that_are_none_are_refused(recipes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        of(recipes=recipes)


def test_where_missing_stood_before_is_told() -> None:
    with pytest.raises(ValidationError, match=r"feedback(.|\n)*`missing` is now `judge\.missing`"):
        of(feedback={"missing": "hold"})


@pytest.mark.parametrize(
    "name", ["model", "messages", "max_tokens", "base_url", "stream", "timeout", "response_format"]
)
def test_what_hone_sets_in_a_request_is_refused_among_the_further_parameters(name: str) -> None:
    assert of(extra={"seed": 7, "reasoning_effort": "low"}).extra == {"seed": 7, "reasoning_effort": "low"}
    with pytest.raises(ValidationError, match=f"{name}: Hone sets that itself"):
        of(extra={"seed": 7, name: 1})


def test_without_a_judge_hone_says_how_to_name_one() -> None:
    with pytest.raises(JudgeMisconfigured, match=r"judge\.model.*\[\[judge\.rewards\]\]"):
        check_settings(of())
    with pytest.raises(JudgeMisconfigured, match="has RULER but no judge model"):
        check_settings(of(rewards=[{"kind": "ruler"}]))
    check_settings(of(rewards=[{"kind": "function", "function": "a:b"}]))


def test_a_key_is_not_printed() -> None:
    assert "sk-secret" not in repr(of(api_key="sk-secret"))


def test_a_rewards_rules_are_those_of_a_criterion() -> None:
    assert get_args(RewardSettings.model_fields["rule"].annotation) == (Rule, type(None))


MEMBER = {"model": "openai/a"}


def test_a_panel_takes_the_place_of_the_one_judge_for_ruler() -> None:
    one = of(model="openai/judge", api_base="http://j/v1", api_key="secret", repeats=3)
    assert [(m.model, m.api_base) for m in one.members] == [("openai/judge", "http://j/v1")]
    assert (one.requests, one.needed, one.ranked_by) == (3, 2, "openai/judge")
    several = of(api_key="secret", panel=[MEMBER, {"model": "openai/b", "weight": 2}], repeats=2)
    assert [reward.kind for reward in several.in_force()] == ["ruler"]
    assert (several.requests, several.needed, several.ranked_by) == (4, 3, "openai/a + openai/b")
    judge = several.as_member(several.members[0])
    assert (judge.model, judge.api_key) == ("openai/a", None)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"min_agreement": 0.5}, "`min_agreement` compares replies"),
        ({"min_agreement": 0.5, "repeats": 3, "quorum": 1}, "quorum of 2"),
        ({"min_agreement": 1.5, "repeats": 2}, "less than or equal to 1"),
        ({"quorum": 3, "repeats": 2}, "a quorum of 3 is never reached: 2 replies"),
        ({"panel": [MEMBER] * 9, "repeats": 8}, "72 requests about one group"),
        ({"repeats": 0}, "greater than or equal to 1"),
        ({"combine": "best"}, "'mean' or 'median'"),
        ({"panel": [{"model": ""}]}, "at least 1 character"),
        ({"panel": [MEMBER | {"weight": 0}]}, "greater than 0"),
        ({"subscores": [{"name": "tone"}]}, "the sub-score 'tone' needs `about`"),
        ({"subscores": [{"name": "safety"}, {"name": "Safety", "about": "x"}]}, "two sub-scores are called 'safety'"),
        ({"subscores": [{"name": "safety", "weight": 0}]}, "no sub-score has a weight above 0"),
        ({"subscores": [{"name": "a.b", "about": "x"}]}, "cannot name a sub-score"),
        ({"subscores": [{"name": f"s{n}", "about": "x"} for n in range(17)]}, "at most 16"),
    ],
)
def test_what_no_panel_can_work_with_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        of(model="openai/judge", **values)


def test_the_recipe_is_as_it_was_where_nothing_new_is_set_and_another_where_it_is() -> None:
    plain = recipe_hash(of(model="openai/judge"))
    assert recipe_hash(of(model="openai/judge", quorum=1)) == plain
    others: list[dict[str, Any]] = [
        {"repeats": 2}, {"repeats": 2, "combine": "median"}, {"panel": [MEMBER]}, {"panel": [MEMBER | {"weight": 2}]},
        {"subscores": [{"name": "safety"}]}, {"subscores": [{"name": "safety", "about": "it harms nobody"}]},
    ]  # fmt: skip
    made = [recipe_hash(of(model="openai/judge", **one)) for one in others]
    assert len({plain, *made}) == len(others) + 1
    bounded = of(model="openai/judge", repeats=2, min_agreement=0.5)  # says what counts, not what a reward is
    assert recipe_hash(bounded) == made[0]


STRONG = {"model": "openai/strong"}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"model": "", "strong": STRONG}, "has no judge to check"),
        ({"strong": {"model": "openai/judge"}}, "is also the judge that it checks"),
        ({"panel": [STRONG], "strong": STRONG}, "is also the judge that it checks"),
        ({"model": "base", "strong": {"model": "base"}}, "is also the judge that it checks"),
        ({"model": "base", "api_base": "http://j/v1"}, "takes neither `api_base` nor `api_key`"),
        ({"panel": [{"model": "base", "api_key": "x"}]}, "takes neither `api_base` nor `api_key`"),
        ({"strong": {"model": "base", "api_key": "x"}}, "takes neither `api_base` nor `api_key`"),
        ({"strong": {}}, "Field required"),
        ({"strong": STRONG | {"every": 0}}, "greater than or equal to 1"),
        ({"strong": STRONG | {"window": 9}}, "greater than or equal to 10"),
        ({"strong": STRONG | {"min_agreement": 1}}, "less than 1"),
        ({"strong": STRONG | {"weight": 2}}, "Extra inputs"),
    ],
)
def test_what_no_two_judges_can_work_with_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        of(**{"model": "openai/judge", **values})


def test_the_strong_judge_is_another_one_at_another_address_under_the_same_recipes() -> None:
    judge = {"model": "openai/judge", "api_base": "http://j/v1", "api_key": "secret"}
    asked = {"panel": [MEMBER, {"model": "base"}], "repeats": 2, "quorum": 2, "min_agreement": 0.1}
    one = of(**judge, **asked, recipes={"brief": {"rubric": "be brief"}}, strong=STRONG)
    strong = one.by_strong()
    assert strong is not None
    assert [(m.model, m.api_base, m.api_key) for m in strong.members] == [("openai/strong", None, None)]
    assert (strong.requests, strong.needed, strong.min_agreement, strong.strong) == (2, 2, 0.1, None)
    assert strong.by_recipe("brief").rubric == "be brief"
    assert recipe_hash(strong) != recipe_hash(one)
    assert recipe_hash(one) == recipe_hash(one.model_copy(update={"strong": None}))  # a score is what it was
    assert of(model="openai/judge").by_strong() is None


def test_an_alias_s_base_goes_by_its_own_name() -> None:
    one = of(model="base", panel=[{"model": "base", "weight": 2}, MEMBER])
    named = one.of_alias("helpdesk")
    assert (named.model, named.ranked_by) == ("helpdesk@0", "helpdesk@0 + openai/a")
    assert [m.weight for m in named.members] == [2, 1]
    assert one.of_alias(None) is one
    plain = of(model="openai/judge")
    assert plain.of_alias("helpdesk") is plain
