"""Everything that can go wrong in the trainer, as one tree.

TrainerError
├── BaseMismatch          the base in the trainer is not the base that sampled the tokens
├── UnsupportedModel      a base whose logprobs this trainer cannot reproduce
├── AliasBusy             another trainer holds the alias
├── AdapterInvalid        an adapter that must not be served: not finite, wrong shape, missing file, unknown module
├── CheckpointInvalid     a saved optimizer state that is missing, torn or of other parameters
├── StepFailed            an optimizer step that was given up (loss not finite, lease lost)
└── Interrupted           the step was asked to stop between two packs
"""

from __future__ import annotations


class TrainerError(Exception):
    """Base of all errors of this package. The message says what, where and what to do."""


class BaseMismatch(TrainerError):
    """The trainer's base differs from the alias's in weights, dtype, tokenizer or chat template."""


class UnsupportedModel(TrainerError):
    """The base's own logprobs are not what this trainer computes for it."""


class AliasBusy(TrainerError):
    """Another trainer holds the alias's lease."""


class AdapterInvalid(TrainerError):
    """An adapter's files fail a check; it is never published."""


class CheckpointInvalid(TrainerError):
    """A checkpoint cannot be loaded."""


class StepFailed(TrainerError):
    """A step was given up; its groups were given back or left out."""


class Interrupted(TrainerError):
    """The step was stopped before its update."""
