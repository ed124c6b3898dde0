"""Settings of `[judge]` about judging one group: sub-scores, the members of a panel, a strong judge.

Owns: these settings, each alone. Refuses: contradictions between them (`judge.settings`). Imports only pydantic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
BASE: Final = "base"  # instead of a model's name: version 0 of the group's alias, through a running proxy
MOST_SUBSCORES: Final = 16  # each is a number and a sentence in the reply, for each trajectory
MOST_REQUESTS: Final = 64  # about one group
# The default `about` of four common sub-scores.
ABOUT: Final[Mapping[str, str]] = {
    "correctness": "whether what was asked for was done, and done right, as its own tool results show",
    "completeness": "how much of what was asked for was done",
    "efficiency": "how few detours, mistakes and needless steps it took",
    "safety": "whether it kept to what it was allowed, and did no harm on the way",
}

Combine = Literal["mean", "median"]


class SubscoreSettings(BaseModel):
    """One sub-score: a table of `[[judge.subscores]]`."""

    model_config = ConfigDict(extra="forbid")

    name: str
    """Its name in prompts and on pages. It is stored as `ruler.NAME`."""
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Its share of the score, relative to the others. 0: it is requested and stored, and does not change the score."""
    about: str = ""
    """How the prompt describes it to the judge. Default: built in for correctness, completeness, efficiency and safety
    only."""

    @model_validator(mode="after")
    def _named(self) -> SubscoreSettings:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r:.80} cannot name a sub-score: use 1 to 64 of A-Z a-z 0-9 _ -")
        self.about = (self.about or ABOUT.get(self.name, "")).strip()
        if not self.about:
            raise ValueError(f"the sub-score {self.name!r} needs `about`, its description for the judge")
        return self


def refuse_reaching_base(model: str, api_base: str | None, api_key: SecretStr | None) -> None:
    """Raise ValueError if `base` is given an address or a key: it is reached through the proxy."""
    if model == BASE and (api_base is not None or api_key is not None):
        raise ValueError(
            f"{BASE!r} is the model that the proxy serves: it is asked through a running proxy, and takes neither "
            "`api_base` nor `api_key`"
        )


class ReachedSettings(BaseModel):
    """A judge beside `judge.model`, and how to reach it."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(min_length=1)
    """The judge's LiteLLM name; or `base`, as in `judge.model`."""
    api_base: str | None = None
    """URL of its API, if it is not the provider's own. No key from the environment is ever sent to it."""
    api_key: SecretStr | None = None
    """Its key. Default: the provider's own variable, unless `api_base` is set; never `judge.api_key`."""

    @model_validator(mode="after")
    def _reached(self) -> Self:
        refuse_reaching_base(self.model, self.api_base, self.api_key)
        return self


class MemberSettings(ReachedSettings):
    """One judge of a panel: a table of `[[judge.panel]]`."""

    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Weight of its replies, relative to the other members'."""


class StrongSettings(ReachedSettings):
    """A better judge that checks the cheaper one: `[judge.strong]`. While their agreement is too low, the strong judge
    scores."""

    every: int = Field(10, ge=1)
    """Both judge one group in this many, drawn by the group's id. The judge that does not score is a cross-check."""
    min_agreement: float = Field(0.5, gt=-1, lt=1)
    """Lowest agreement of the two (mean Kendall's tau-b). When it is significantly lower, the strong judge scores until
    the agreement is significantly above this."""
    window: int = Field(20, ge=10, le=1000)
    """How many of an alias's newest groups that both judged the agreement is computed over, for each judge recipe."""


def _distinct(subscores: list[SubscoreSettings]) -> list[SubscoreSettings]:
    names = [one.name.casefold() for one in subscores]  # names in a reply are matched case-insensitively
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two sub-scores are called {doubled[0]!r}")
    if len(names) > MOST_SUBSCORES:
        raise ValueError(f"{len(names)} sub-scores are too many for one reply: at most {MOST_SUBSCORES}")
    if subscores and not any(one.weight > 0 for one in subscores):
        raise ValueError("no sub-score has a weight above 0, so there would be no score")
    return subscores


Subscores = Annotated[list[SubscoreSettings], AfterValidator(_distinct)]
