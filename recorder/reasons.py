"""One plain sentence for every reason code: why something was excluded, refused, postponed or moved.

Owns: the sentences, for terminals and docs/reasons.md (`python -m scripts.reasons`). Tests hold the page to this table
and the table to the codes in use. Refuses: the codes themselves, which the deciding modules name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REASONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Runs and groups": {
        "too_few": "Fewer than two runs of the group can be compared, so nobody can say which went better.",
        "too_old": "The group was complete for longer than `learn.max_age_s` before it was learnt from.",
        "no_complete_call": "No model ever answered the run, so there is nothing to judge.",
        "purpose_none": "Its caller wanted it recorded, and neither measured nor trained on.",
        "measured": "A function alone tells what these attempts of a gate or an evaluation are worth.",
        "mixed_purpose": "Some runs of the group are there to be measured only, so none is trained on.",
        "errored": "The engine, the network or the harness failed, not the agent.",
        "abandoned": "A new attempt took its place, or its owner gave it up.",
        "sealed-late": "The run still went on when its group had to close without it.",
        "not_recorded": "A replay asked a tool for what its record has no answer to; nothing was made up.",
        "not_selected": "The agent asked for several answers and went on with another one.",
        "deleted": "The run was deleted, by a person or by `recorder.retention_days`.",
        "lease_expired": "Whoever worked on the group died or was cut off; somebody else takes it.",
    },
    "Judging": {
        "ruler_needs_two": "RULER compares runs, and the group has one.",
        "too_long_to_judge": "Too little of it fits into `judge.max_context_chars`, however much is left out.",
        "waiting_for_feedback": "Feedback may still come (`judge.feedback.wait_s`).",
        "parts_missing": "Too many runs lack a part of the reward, and get none.",
        "recipe_unknown": "The judge's settings lack the recipe that the group's campaign or alias names.",
        "no_judge_model": "A rubric has criteria that code does not decide, and `judge.model` is not set.",
        "functions_down": "The process of the reward functions could not be started, or died.",
        "judge_down": "The judge's API could not be reached or is broken; it is asked again later.",
        "judge_timeout": "The judge did not answer within `judge.timeout_s`; it is asked again later.",
        "judge_refused": "The judge's API refused the request: look at its key, its model and its limits.",
        "judge_busy": "The judge's API asked for a longer pause (`Retry-After`); it is asked again after that.",
        "judge_declined": "The judge model declined to judge these runs.",
        "judge_filtered": "The content filter of the judge's provider refused the prompt, or cut the reply off.",
        "judge_unreadable": "The judge's reply could not be read, nor the second one that it was asked for.",
        "judge_quorum": "Too few of the replies that a panel or repeats are asked for could be had (`judge.quorum`).",
        "judges_disagree": "The judges agree too little (`judge.min_agreement`): a person decides (`hone review`).",
        "score_not_written": "The store refused the score; it is tried again later, by the reply that is at hand.",
        "feedback_late": "The feedback came when the run's group was in training; its score is without it.",
        "asked_anew": "Somebody wanted the group scored again; its detail says who, and why.",
        "judge_fault": "A fault of Hone's own kept the group from being scored; the log has it.",
    },
    "Campaigns": {
        "tool_left_out": "A tool that its MCP server does not mark read-only was kept from a campaign's attempts.",
    },
    "Training: runs and groups": {
        "trained": "A version in the line of the live one was trained on it.",
        "untrained": "It was trained on, and that version was taken back.",
        "reward_missing": "The judge gave this run no reward.",
        "zero_variance": "All runs of the group did equally well: there is nothing to prefer.",
        "nothing_sampled": "No call of the run has a sampled answer on record.",
        "no_baseline": "Too few earlier rewards of its alias and recipe are there to compare it with.",
        "row_too_long": "The run is longer than `trainer.token_budget`.",
        "step_failed": "The training step on this group failed `trainer.max_tries` times.",
        "version_rejected": "The version that was trained on it behaved worse or was rolled back.",
        "versions_failed": "Too many versions that were trained on it came to nothing.",
        "given_back": "The version that was trained on it came to nothing: the group may be trained on again.",
    },
    "Training: single answers": {
        "purpose": "The run is there to be measured, or only recorded.",
        "not_complete": "The client hung up, or the call failed, before the answer was complete.",
        "ambiguous_attribution": "Which run the call belongs to is not certain.",
        "auxiliary_call": "An errand beside the agent's work: a title, a summary.",
        "superseded": "The client sent the request again, and went on with the other answer.",
        "redacted": "Text was taken out of the call (`recorder.redact`), and its tokens with it.",
        "temperature_below_0.1": "Sampled at a temperature below 0.1: what was likely cannot be seen.",
        "top_p": "Sampled with top_p below 1: the engine's probabilities are not those it sampled by.",
        "top_k": "Sampled with top_k: the engine's probabilities are not those it sampled by.",
        "min_p": "Sampled with min_p: the engine's probabilities are not those it sampled by.",
        "structured_output": "The answer was forced into a schema, so its tokens were not the model's own choice.",
        "distorted_sampling": "Penalties, logit bias or a forced tool changed what was sampled.",
        "finish_reason": "The answer was cut off before it ended.",
        "token_ids_missing": "The engine gave no token ids: another provider's model, or an engine without them.",
        "token_ids_malformed": "What the engine gave as token ids are none.",
        "logprobs_missing": "The engine gave no probabilities for the tokens.",
        "logprobs_miscounted": "The engine gave more or fewer probabilities than tokens.",
        "logprobs_not_finite": "A probability that the engine gave is no number.",
        "logprobs_above_zero": "A probability that the engine gave is above one.",
        "base_fingerprint": "Another base model sampled it than the one that is trained.",
        "foreign_version": "A version sampled it that is no ancestor of the one being trained.",
        "in_own_group": "A turn answered again: its run's own group is trained on, and the turn counts there.",
        "over_age": "It was sampled more than `trainer.max_age` steps ago.",
        "other_version": "The run moved to another version midway; this answer is the earlier one's.",
        "never_trained": "Nothing that this client sends can be trained on; `detail` says what to set.",
    },
}


def explain_reason(code: str) -> str | None:
    """The sentence for a code; None for one that says itself what it means."""
    return next((sentences[code] for sentences in REASONS.values() if code in sentences), None)
