"""The kinds of rewards: the registry.

Owns: which there are, and the order in which they are asked. Refuses: what a kind is (`judge.rewards.kind`) and does: a
new one is a file of its own, one line here, and one word in the `kind` of `judge.settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from judge.rewards.by_feedback import by_feedback
from judge.rewards.by_function import by_function
from judge.rewards.by_rubric import by_rubric
from judge.rewards.by_rule import by_rule
from judge.rewards.by_ruler import by_ruler
from judge.rewards.kind import Kind

# Cheap kinds come first: the judge is not paid for a group that cannot be scored anyway.
REWARDS: Mapping[str, Kind] = {
    "rule": by_rule,
    "feedback": by_feedback,
    "function": by_function,
    "ruler": by_ruler,
    "rubric": by_rubric,
}
BY_MODEL: Final = frozenset({"ruler", "rubric"})  # of these a judge model decides
