"""Which sampled choices of a call may be trained on, and the reason codes for the others.

Owns: the reason codes about tokens (used by all packages, in `choices.untrainable_reason` and in the ledger), and the
rule for one sampled choice. Refuses: rules that need the trajectory, the group or the trainer; these use the codes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from recorder.messages.calls import RecordedCall, SampledChoice, SamplingParameters
from recorder.messages.media import has_media
from recorder.states import CallKind, CallState, Confidence, Purpose

MAX_LOGPROB = 1e-3  # a probability is at most 1; rounding errors are a thousand times smaller
MIN_TEMPERATURE = 0.1  # below it sampling is nearly greedy: the logprobs say nothing about the choice
ENGINE_MISSING_LOGPROB = -9999.0  # vLLM's value for a missing logprob
TRAINED_FINISHES = frozenset({"stop", "tool_calls", "function_call"})


class Exclusion(StrEnum):
    """Why tokens are excluded: they are context (masked) and not trained on."""

    # of the call
    PURPOSE = "purpose"  # val, eval, none
    NOT_COMPLETE = "not_complete"  # aborted, errored
    AMBIGUOUS = "ambiguous_attribution"  # the call's trajectory is not certain
    AUXILIARY = "auxiliary_call"  # a title or a summary beside the agent's work
    SUPERSEDED = "superseded"  # a retry replaced it
    REDACTED = "redacted"  # text was redacted, and the token ids removed with it
    REDACTION_TIMEOUT = "redaction_timeout"  # redaction did not finish, so neither text nor ids are stored
    MEDIA = "media"  # the prompt holds a picture, audio or video, which the trainer cannot compute
    # of the sampling
    TEMPERATURE = "temperature_below_0.1"
    TOP_P = "top_p"
    TOP_K = "top_k"
    MIN_P = "min_p"
    STRUCTURED_OUTPUT = "structured_output"
    DISTORTED = "distorted_sampling"  # penalties, logit_bias, forced tools …
    # of the choice
    TRUNCATED = "finish_reason"  # anything but stop and tool_calls
    IDS_MISSING = "token_ids_missing"
    IDS_MALFORMED = "token_ids_malformed"  # the ids of the choice or of its prompt are invalid
    IDS_DISAGREE = "ids_disagree"  # the engine's ids contradict its usage, or the text that it made of them
    LOGPROBS_MISSING = "logprobs_missing"
    LOGPROBS_MISCOUNTED = "logprobs_miscounted"
    LOGPROBS_NOT_FINITE = "logprobs_not_finite"
    LOGPROBS_ABOVE_ZERO = "logprobs_above_zero"
    # of the trajectory and the version
    NOT_SELECTED = "not_selected"  # a choice of n>1 that the agent did not continue
    BASE_FINGERPRINT = "base_fingerprint"  # sampled with another base model
    FOREIGN_VERSION = "foreign_version"  # not an ancestor of the version that is trained
    OVER_AGE = "over_age"  # too many steps ago
    DELETED = "deleted"  # its trajectory was deleted
    OTHER_VERSION = "other_version"  # a mixed trajectory's tokens of its earlier version


def untrainable_reason(turn: RecordedCall, choice: SampledChoice, *, ids_readable: bool = True) -> str | None:
    """Return why this choice may not be trained on, by the call alone, or None if it may.

    `ids_readable`: the engine's ids of the prompt and of the choice are valid token ids.
    """
    if not ids_readable:
        return Exclusion.IDS_MALFORMED
    # First: an answer with text but without ids, as from other providers' models.
    text_alone = Exclusion.IDS_MISSING if choice.message is not None and choice.token_ids is None else None
    return _of_call(turn) or text_alone or _of_sampling(turn) or _of_choice(choice) or _of_usage(turn)


def _of_call(turn: RecordedCall) -> Exclusion | None:
    if turn.redacted is not None:
        return Exclusion.REDACTED if turn.redacted.finished else Exclusion.REDACTION_TIMEOUT
    if has_media(turn.request.messages):
        return Exclusion.MEDIA
    if turn.attribution.trajectory.purpose is not Purpose.TRAIN:
        return Exclusion.PURPOSE
    if turn.state is not CallState.COMPLETE:
        return Exclusion.NOT_COMPLETE
    if turn.attribution.confidence in (Confidence.AMBIGUOUS, Confidence.HINT):
        return Exclusion.AMBIGUOUS
    if turn.call_kind is CallKind.AUX:
        return Exclusion.AUXILIARY
    return None


def sampling_reasons(sampling: SamplingParameters) -> list[Exclusion]:
    """Return every reason in the sampling parameters; the first one is stored with the choice."""
    holds = {
        Exclusion.TEMPERATURE: sampling.temperature < MIN_TEMPERATURE,
        Exclusion.TOP_P: sampling.top_p != 1.0,
        Exclusion.TOP_K: sampling.top_k is not None and sampling.top_k > 0,
        Exclusion.MIN_P: sampling.min_p > 0.0,
        Exclusion.DISTORTED: bool(sampling.distorting),
    }
    return [reason for reason, holding in holds.items() if holding]


def _of_sampling(turn: RecordedCall) -> Exclusion | None:
    reason = next(iter(sampling_reasons(turn.request.sampling)), None)
    form = turn.request.response_format
    structured = form is not None and form.get("type") != "text"
    return Exclusion.STRUCTURED_OUTPUT if structured and reason in (None, Exclusion.DISTORTED) else reason


def _of_choice(choice: SampledChoice) -> Exclusion | None:
    if choice.finish_reason not in TRAINED_FINISHES:
        return Exclusion.TRUNCATED
    if not choice.token_ids:
        return Exclusion.IDS_MISSING
    if bool in set(map(type, choice.token_ids)):  # JSON's true, which would be packed as 1
        return Exclusion.IDS_MALFORMED
    logprobs = choice.logprobs
    if logprobs is None:
        return Exclusion.LOGPROBS_MISSING
    if len(logprobs) != len(choice.token_ids):
        return Exclusion.LOGPROBS_MISCOUNTED
    # one infinity or NaN makes the sum one: cheaper than testing each
    if not math.isfinite(sum(logprobs)):
        return Exclusion.LOGPROBS_NOT_FINITE
    if max(logprobs) > MAX_LOGPROB:
        return Exclusion.LOGPROBS_ABOVE_ZERO
    return Exclusion.LOGPROBS_MISSING if min(logprobs) <= ENGINE_MISSING_LOGPROB else None


def _of_usage(turn: RecordedCall) -> Exclusion | None:
    prompt = None if turn.prompt_token_ids is None else len(turn.prompt_token_ids)
    sampled = 0
    for choice in turn.choices:
        sampled += len(choice.token_ids or ())
    return Exclusion.IDS_DISAGREE if contradicts_usage(turn.usage, prompt, sampled) else None


def contradicts_usage(usage: Mapping[str, Any] | None, prompt_ids: int | None, sampled_ids: int) -> bool:
    """Whether the numbers of a call's ids contradict the engine's own counts: one of the two is wrong, and no one knows
    which. `prompt_ids` None: unknown; `sampled_ids`: of all choices.
    """
    sampled, prompt = (usage or {}).get("completion_tokens"), (usage or {}).get("prompt_tokens")
    if sampled is not None and sampled != sampled_ids:
        return True
    return prompt is not None and prompt_ids is not None and prompt != prompt_ids
