"""Everything that can go wrong in the trainer, as one tree.

TrainerError
├── BaseMismatch          the base in the trainer is not the base that sampled the tokens
├── UnsupportedModel      a base whose logprobs this trainer cannot reproduce
├── AliasBusy             another trainer holds the alias
├── AdapterInvalid        an adapter that must not be served: not finite, wrong shape, missing file, unknown module
├── CheckpointInvalid     a saved optimizer state that is missing, incomplete or of other parameters
├── StepFailed            an optimizer step that was abandoned (loss not finite, lease lost)
├── EngineMismatch        a step whose turns are all masked: the engine's logprobs are not the trainer's
├── PlanInvalid           a model, card or length for which no memory can be computed
├── DoesNotFit            a set-up of engine and trainer that a card cannot hold
├── MemoryFull            a pass with one row alone did not fit into memory
├── RowTooLong            a row above the token budget did not fit into memory in a pass of its own
├── RankLost              a process of several that train together ended, or does not answer
├── VersionNotWritten     a step's version or checkpoint could not be written: disk full, folder not writable
├── StepInterrupted       the step was asked to stop between two packs
├── TinkerUnsupported     settings, a base or rows that the Tinker API cannot compute as this trainer does
├── TinkerRefused         a training service that refuses the key, the account or a request
├── TinkerUnavailable     a training service that does not answer, or that lost the session
├── CheckpointExpired     a version's optimizer state that a training service no longer has
├── ScenariosInvalid      a scenario file that cannot be read, with the lines at fault
├── ConditionInvalid      a `--where` that cannot be read
├── NoTasks               recorded trajectories that give no task, or an output file that exists already
├── ToolsUnavailable      an MCP server that lists no tool for which tasks could be written
├── GeneratorFailed       no model is set that can write scenarios, or it wrote no usable one
├── AgentUnusable         an agent or success function that cannot be imported, started or called
├── ServiceUnavailable    no proxy answers, or what was started for the campaign did not become ready
└── CampaignError         a campaign that cannot begin or resume
    └── CampaignBusy      another process runs the campaign
"""

from __future__ import annotations

from recorder.base.errors import MISCONFIGURED, HoneError


class TrainerError(HoneError):
    """Base of all errors of this package. The message says what, where and what to do."""


class BaseMismatch(TrainerError):
    """The trainer's base differs from the alias's in weights, dtype, tokenizer or chat template."""

    exit_code = MISCONFIGURED


class UnsupportedModel(TrainerError):
    """The base's own logprobs are not what this trainer computes for it."""

    exit_code = MISCONFIGURED


class AliasBusy(TrainerError):
    """Another trainer holds the alias's lease."""


class AdapterInvalid(TrainerError):
    """An adapter's files fail a check; it is never published."""


class CheckpointInvalid(TrainerError):
    """A checkpoint cannot be loaded."""


class StepFailed(TrainerError):
    """A step was abandoned; its groups were given back or excluded."""


class EngineMismatch(TrainerError):
    """Every turn of a step's groups is masked (`trainer.mask_ratio`): nothing is left to train on."""


class PlanInvalid(TrainerError):
    """What `hone plan` was asked for does not exist."""

    exit_code = MISCONFIGURED


class DoesNotFit(TrainerError):
    """The trainer cannot hold a pass of `trainer.token_budget` on its card."""

    exit_code = MISCONFIGURED


class MemoryFull(TrainerError):
    """A pass with one row alone does not fit into memory. The groups are not at fault: they are given back."""

    exit_code = MISCONFIGURED


class RowTooLong(TrainerError):
    """A row above `trainer.token_budget` does not fit into memory alone, though it was estimated to.

    It is excluded, and so are rows that are as long; the step begins again without them.
    """


class RankLost(TrainerError):
    """A process of several that train together ended, or does not answer.

    The groups are not at fault: they are given back. This process must end, and be started again.
    """


class VersionNotWritten(TrainerError):
    """A step's result could not be written to disk; no file of it remains."""


class StepInterrupted(TrainerError):
    """The step was stopped before its update."""


class TinkerUnsupported(TrainerError):
    """The Tinker API cannot compute what the settings, the base or the rows of a step need."""

    exit_code = MISCONFIGURED


class TinkerRefused(TrainerError):
    """The training service refuses the key, the account or a request: the same request fails again.

    The groups are not at fault: they are given back.
    """

    exit_code = MISCONFIGURED


class TinkerUnavailable(StepFailed):
    """The training service does not answer, limits the rate, or lost the session: another try may work.

    The groups are not at fault: they are given back.
    """


class CheckpointExpired(TrainerError):
    """The training service no longer has the state of the version that a step begins at. The groups are given back."""

    exit_code = MISCONFIGURED


class ScenariosInvalid(TrainerError):
    """A scenario file is invalid; nothing of it is used."""

    exit_code = MISCONFIGURED


class DemonstrationsInvalid(TrainerError):
    """A file of demonstrations is invalid, or nothing can be imitated; nothing was trained."""

    exit_code = MISCONFIGURED


class ConditionInvalid(TrainerError):
    """A condition on trajectories cannot be read."""


class NoTasks(TrainerError):
    """No recorded trajectory matches, or the output file cannot be written; nothing was written."""


class ToolsUnavailable(TrainerError):
    """An MCP server does not answer, or has no suitable tool."""


class GeneratorFailed(TrainerError):
    """The model that writes scenarios is not set, does not answer, or writes none that can be used."""


class AgentUnusable(TrainerError):
    """The agent, or the success function, cannot be run at all (one attempt's failure is data, not this)."""


class ServiceUnavailable(TrainerError):
    """A proxy, engine or judge that the campaign needs is missing and could not be started."""


class CampaignError(TrainerError):
    """A campaign cannot begin or resume."""


class CampaignBusy(CampaignError):
    """Another process holds the campaign's lease."""
