"""One plain sentence and a tone for every reason code: why something was excluded, refused, postponed or moved.

Owns: the tones, and the sentences, for terminals and docs/reasons.md (`python -m scripts.reasons`). Tests compare the
page with this table and the table with the codes in use. Refuses: the codes themselves, which the deciding modules
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from recorder.states import Tone, state_tone

REASONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Trajectories and groups": {
        "too_few": "Without a running baseline, a group needs at least two completed trajectories; this one has fewer.",
        "too_old": "More than `learn.max_age_s` passed between the group's completion and its training.",
        "no_complete_call": "No call of the trajectory got a complete answer, so there is nothing to judge.",
        "purpose_none": "Its caller asked to record it only, neither to measure it nor to train on it.",
        "measured": "Measured, not for training: an attempt of a validation, a gate or an evaluation.",
        "mixed_purpose": "Some trajectories of the group are only there to be measured, so none is trained on.",
        "errored": "The engine, the network or the harness failed, not the agent.",
        "abandoned": "A new attempt replaced it, or its owner gave it up.",
        "sealed-late": "The trajectory was still open when its group had to close.",
        "not_recorded": "A replay called a tool for which the recording has no answer; no answer is made up.",
        "not_selected": "The agent requested several answers and continued with another one.",
        "deleted": "The trajectory was deleted, by a person or by `recorder.retention_days`.",
        "lease_expired": "The process that held the group died or lost its connection; another one takes the group.",
    },
    "Judging": {
        "ruler_needs_two": "RULER compares trajectories, and the group has only one.",
        "too_long_to_judge": "Even shortened, the prompt does not fit into `judge.max_context_chars`.",
        "waiting_for_feedback": "Feedback may still arrive (`judge.feedback.wait_s`).",
        "parts_missing": "Too many trajectories lack a part of the reward, and get no reward.",
        "waiting_for_follow_up": "Users may still write what comes next (`judge.follow_up_wait_s`).",
        "no_follow_up": "Nothing that says something about the answers came within `judge.follow_up_wait_s`.",
        "check_undecided": "Code could not decide a rule, a function or a criterion's `check` in three tries.",
        "recipe_unknown": "The judge's settings lack the judge recipe that the group's campaign or alias names.",
        "no_judge_model": "A rubric has criteria that code cannot decide, and `judge.model` is not set.",
        "functions_down": "The process of the reward functions could not be started, or it died.",
        "judge_down": "The judge's API is unreachable or broken; the request is repeated later.",
        "judge_timeout": "The judge did not answer within `judge.timeout_s`; the request is repeated later.",
        "judge_refused": "The judge's API refused the request: check its key, its model and its limits.",
        "judge_busy": "The judge's API asked for a longer pause (`Retry-After`); the request is repeated after it.",
        "judge_declined": "The judge model declined to judge these trajectories.",
        "judge_filtered": "The content filter of the judge's provider refused the prompt or cut off the reply.",
        "judge_unreadable": "Neither the judge's reply nor the reply to a second request could be parsed.",
        "judge_quorum": "Too few requests of a panel or of repeats got a usable reply (`judge.quorum`).",
        "judges_disagree": "The judges agree less than `judge.min_agreement`: a person decides (`hone review`).",
        "score_not_written": "The store refused the score; writing it is repeated later from the stored reply.",
        "feedback_late": "The feedback arrived while the group was in training, so its score does not include it.",
        "asked_anew": "A rescore of the group was requested; the detail says by whom and why.",
        "judge_fault": "An internal error of Hone kept the group from being scored; the log has the traceback.",
    },
    "Campaigns": {
        "campaign_ended": "It was sampled ahead (`campaign.max_lag`), and its campaign ended before a step took it.",
        "tool_left_out": "A tool not marked as read-only by its MCP server was withheld from a campaign's attempts.",
    },
    "Learning": {
        "health_rules": "The health rules that signal about live learning of the alias changed (docs/health.md).",
    },
    "Training: trajectories and groups": {
        "trained": "A version in the ancestry of the live version was trained on it.",
        "untrained": "It was trained on, and that version was rolled back.",
        "reward_missing": "The judge gave this trajectory no reward.",
        "zero_variance": "All trajectories of the group have the same reward, so no advantage remains.",
        "too_close": "The judge's rewards of the group differ by less than `trainer.min_spread`, which may be chance.",
        "judge_by_chance": "The group has two trajectories, and its judge orders pairs no better than chance.",
        "nothing_sampled": "No call of the trajectory has a recorded sampled answer.",
        "drift_set": "It is in its alias's drift set (`trainer.drift_trajectories`), on which versions are compared.",
        "held_out_scenario": "It attempts a scenario of a validation or test part, so it is not trained on.",
        "follow_up_share": "Follow-ups of one key fill their share of a step (`trainer.follow_up_share`); it waits.",
        "already_used": "The objective's `epochs` are reached: the live version was trained on it so often.",
        "duplicate": "The same row stands earlier in the file.",
        "no_answer": "It has no answer to train on.",
        "other_model": "The rejected side of the pair is of another model or alias than the one that learns.",
        "different_tasks": "The two sides of the pair are not answers to the same task.",
        "same_answer": "The two sides of the pair have the same tokens.",
        "no_lesson": "Steps train on `hindsight` or `distill` alone, and no answer had a lesson when it was its turn.",
        "no_change": "The training step on this group left the weights as they were, so it made no version.",
        "logprob_gap": "The engine's logprobs of its tokens are not the trainer's, so no version is trained on it.",
        "logprob_gap_allowed": "It was refused as `logprob_gap`; `trainer.max_logprob_gap` now accepts the difference.",
        "no_baseline": "Its alias and judge recipe have too few earlier rewards for a running baseline.",
        "row_too_long": (
            "The trajectory has more tokens than `trainer.token_budget`, and does not fit into memory alone."
        ),
        "step_failed": "The training step on this group failed `trainer.max_tries` times.",
        "kl_parent_max": "Steps on this group went too far from their parent, `trainer.max_tries` times.",
        "version_rejected": "The version that was trained on it was worse, or it was rolled back.",
        "versions_failed": "Too many versions that were trained on it never went live.",
        "given_back": "The version that was trained on it never went live; the group may be trained on again.",
    },
    "Training: single answers": {
        "purpose": "The trajectory is only there to be measured or recorded.",
        "not_complete": "The client hung up, or the call failed, before the answer was complete.",
        "ambiguous_attribution": "It is not certain which trajectory the call belongs to.",
        "auxiliary_call": "An auxiliary call beside the agent's work, such as a title or a summary.",
        "superseded": "The client retried the request and continued with the other answer.",
        "redacted": "Text was removed from the call (`recorder.redact`), and its tokens with it.",
        "redaction_timeout": "Redaction of the call did not finish in time: neither text nor tokens are stored.",
        "media": "The prompt holds a picture, audio or video, which the trainer cannot compute yet.",
        "temperature_below_0.1": "Sampled at a temperature below 0.1: its logprobs do not show the distribution.",
        "top_p": "Sampled with top_p below 1: the engine's logprobs are not those of the sampled distribution.",
        "top_k": "Sampled with top_k: the engine's logprobs are not those of the sampled distribution.",
        "min_p": "Sampled with min_p: the engine's logprobs are not those of the sampled distribution.",
        "structured_output": "The answer was constrained to a schema, so its tokens were not the model's own choice.",
        "distorted_sampling": "Penalties, a logit bias or a forced tool changed the sampled distribution.",
        "finish_reason": "The answer was cut off before it ended.",
        "tool_call_unparsed": "It has a tool call that no program can read, so it is not trained on.",
        "cannot_be_split": "The chat template's text of the answer has no beginning or no end of its own.",
        "history_rewritten": "The agent changed the conversation before the answer, which has no token ids.",
        "ids_disagree": "The engine's token ids contradict its own usage, or the text that it made of them.",
        "token_ids_missing": "The engine returned no token ids: another provider's model, or an engine without them.",
        "token_ids_malformed": "The engine returned values that are not token ids.",
        "logprobs_missing": "The engine returned no logprobs for the tokens.",
        "logprobs_miscounted": "The engine returned more or fewer logprobs than tokens.",
        "logprobs_not_finite": "A logprob that the engine returned is not a finite number.",
        "logprobs_above_zero": "A logprob that the engine returned is above zero.",
        "base_fingerprint": "It was sampled with another base model than the one being trained.",
        "foreign_version": "It was sampled with a version that is no ancestor of the one being trained.",
        "in_own_group": "The live answer among shadow answers: it is trained on in its trajectory's own group.",
        "over_age": "It was sampled more than `trainer.max_age` steps ago.",
        "other_version": "The trajectory moved to another version midway; the earlier version sampled this answer.",
        "engine_mismatch": "The engine's probabilities of its tokens are not the trainer's (`trainer.mask_ratio`).",
        "hint_refused": "The chat template takes no hint before this answer, so `hindsight` cannot use it.",
        "hint_too_long": "With its hint, the answer has more tokens than the trainer or the base can compute.",
        "prompt_differs": "The chat template begins the answer otherwise than the engine did, so no hint is given.",
        "teacher_refused": "The stronger model of `trainer.distill.url` gave no logprobs for it: it may be too long.",
        "never_trained": "No call of this client can be trained on; `detail` says what to set.",
    },
}


# Something failed: an engine, a judge, a program or a training step.
_FAULTS: Final = frozenset(
    {
        "errored",
        "no_complete_call",
        "recipe_unknown",
        "no_judge_model",
        "functions_down",
        "judge_down",
        "judge_timeout",
        "judge_refused",
        "judge_unreadable",
        "judge_quorum",
        "score_not_written",
        "judge_fault",
        "logprob_gap",
        "step_failed",
        "kl_parent_max",
        "versions_failed",
        "redaction_timeout",
        "ids_disagree",
        "token_ids_malformed",
        "logprobs_miscounted",
        "logprobs_not_finite",
        "logprobs_above_zero",
        "engine_mismatch",
        "teacher_refused",
    }
)
# Nothing failed, but more could be trained on if a person changed or decided something, or it is repeated.
_ATTENTION: Final = frozenset(
    {
        "sealed-late",
        "not_recorded",
        "lease_expired",
        "too_long_to_judge",
        "parts_missing",
        "check_undecided",
        "judge_busy",
        "judge_declined",
        "judge_filtered",
        "judges_disagree",
        "feedback_late",
        "tool_left_out",
        "health_rules",
        "untrained",
        "reward_missing",
        "row_too_long",
        "version_rejected",
        "temperature_below_0.1",
        "top_p",
        "top_k",
        "min_p",
        "structured_output",
        "distorted_sampling",
        "tool_call_unparsed",
        "logprobs_missing",
        "base_fingerprint",
        "never_trained",
    }
)


def reason_tone(code: str) -> Tone:
    """Return the tone of a reason code. An exclusion that is no fault is neutral."""
    if code == "trained":
        return Tone.GOOD
    return Tone.FAULT if code in _FAULTS else Tone.ATTENTION if code in _ATTENTION else Tone.NEUTRAL


def tone_with_reason(state: str, reason: str | None) -> Tone:
    """Return the tone of a group's state: that of its reason if it has one, which says whether something is wrong."""
    return reason_tone(reason) if reason else state_tone(state)


def explain_reason(code: str) -> str | None:
    """Return the sentence for a reason code; None for a code whose name explains it."""
    return next((sentences[code] for sentences in REASONS.values() if code in sentences), None)
