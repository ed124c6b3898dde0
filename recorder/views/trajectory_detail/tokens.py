"""The exact tokens of one call, page by page.

Owns: reading the ids and logprobs. Refuses: the tokens' text, which is not stored: an engine can decode it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

from recorder.errors import NotFound
from recorder.store.database import Store
from recorder.views.trajectories.shapes import CallView, ChoiceView, TrajectoryView
from recorder.views.trajectories.transcripts import load_trajectory

PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `logprob`: at which it was sampled; None for a prompt's tokens, or if the engine gave none."""

    at: int
    id: int
    logprob: float | None


@dataclass(frozen=True, slots=True)
class TokenPage:
    """A page of a choice's tokens, or of its prompt's. `total`: the number of all, None if the ids are unknown."""

    call_id: str
    choice: int
    of_prompt: bool
    trainable: bool
    base_fingerprint: str | None
    total: int | None
    first: int
    tokens: tuple[Token, ...]

    @property
    def next(self) -> int | None:
        """The position of the next page's first token, or None on the last page."""
        after = self.first + len(self.tokens)
        return after if self.total is not None and after < self.total else None


async def load_tokens(
    store: Store, trajectory_id: str, call_id: str, choice: int = 0, *, of_prompt: bool = False, first: int = 0
) -> TokenPage:
    """Load a page of tokens of a trajectory's call. Raises NotFound."""
    view = await load_trajectory(store, trajectory_id, with_tokens=True)
    call, chosen = _chosen(view, call_id, choice)
    ids = call.prompt_token_ids if of_prompt else chosen.token_ids
    logprobs = None if of_prompt else chosen.logprobs
    first = max(0, min(first, len(ids or ())))
    return TokenPage(
        call_id=call_id,
        choice=choice,
        of_prompt=of_prompt,
        trainable=chosen.trainable,
        base_fingerprint=call.base_fingerprint,
        total=None if ids is None else len(ids),
        first=first,
        tokens=_tokens(ids or array("i"), logprobs, first),
    )


def _chosen(view: TrajectoryView, call_id: str, choice: int) -> tuple[CallView, ChoiceView]:
    for call in view.calls:
        for one in call.choices:
            if (call.id, one.index) == (call_id, choice):
                return call, one
    raise NotFound(f"trajectory {view.id} has no choice {choice} of a call {call_id[:200]!r}")


def _tokens(ids: array[int], logprobs: array[float] | None, first: int) -> tuple[Token, ...]:
    known = logprobs if logprobs is not None and len(logprobs) == len(ids) else None
    page = range(first, min(first + PAGE, len(ids)))
    return tuple(Token(at, ids[at], None if known is None else known[at]) for at in page)
