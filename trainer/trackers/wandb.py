"""Weights & Biases: sends figures to a run of a project.

Owns: a run that holds only what Hone sends: no code, git state, environment, console output, machine figures or host
name. Refuses: keys; the library finds its own.
"""

from __future__ import annotations

import wandb

from trainer.track_settings import TrackSettings
from trainer.trackers.base import Tracker, TrackerEntry, TrackerRun

_STEP = "step"


def begin(run: TrackerRun, settings: TrackSettings) -> Tracker:
    """Begin or resume a run. Raises `RuntimeError` if there is no key, and wandb's own errors."""
    if settings.wandb_mode == "online" and not wandb.api.api_key:  # wandb would ask for one in the terminal
        raise RuntimeError(
            "no key for Weights & Biases: run `wandb login`, set WANDB_API_KEY, or set track.wandb_mode to offline"
        )
    begun = wandb.init(
        entity=settings.wandb_entity,
        project=settings.wandb_project,
        name=settings.wandb_name or run.name,
        id=run.id,
        resume="allow",
        settings=_quiet(run, settings),
    )
    begun.config.update(dict(run.settings), allow_val_change=True)  # type: ignore[no-untyped-call]  # theirs
    begun.define_metric(_STEP, hidden=True)
    begun.define_metric("*", step_metric=_STEP)
    return _WandbTracker(begun)


def _quiet(run: TrackerRun, settings: TrackSettings) -> wandb.Settings:
    return wandb.Settings(
        mode=settings.wandb_mode,
        root_dir=run.folder,
        console="off",
        silent=True,
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        save_code=False,
        host="hone",
        program="hone",
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )


class _WandbTracker:
    def __init__(self, run: wandb.Run) -> None:
        self._run = run

    def log(self, nth: int, entry: TrackerEntry) -> None:
        # wandb's own step must only increase, so it is the event's number; the charts' axis is a figure of its own.
        self._run.log({**entry.figures, **entry.texts, _STEP: entry.step}, step=nth)

    def end(self, reason: str, *, failed: bool) -> None:
        self._run.summary["reason"] = reason
        self._run.finish(exit_code=int(failed))
