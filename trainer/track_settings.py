"""The `[track]` section of hone.toml: which trackers of experiments are sent a campaign's and the learner's figures.

Owns: names and defaults. Refuses: keys: each tracker finds its own where it always does (docs/metrics.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

TrackerName = Literal["wandb", "tensorboard", "mlflow"]  # of a tracker, its module, and the extra that installs it


class TrackSettings(BaseModel):
    """Where `hone train` and `hone learn` send their figures (docs/metrics.md says which)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    wandb_project: str | None = None
    """Weights & Biases: the project. Its key is found where `wandb login` or WANDB_API_KEY put it."""
    wandb_name: str | None = None
    """Weights & Biases: the run's name. Default: the campaign's or alias's."""
    wandb_entity: str | None = None
    """Weights & Biases: the team or user that the project belongs to. Default: the key's."""
    wandb_mode: Literal["online", "offline"] = "online"
    """`offline`: nothing is sent; `wandb sync` does it later, from `tracking/wandb` in the data folder."""
    tensorboard: Path | None = None
    """TensorBoard: the folder; each run gets one of its own in it."""
    mlflow: str | None = None
    """MLflow: its tracking URI, such as `http://127.0.0.1:5000` or `sqlite:///mlflow.db`."""
    mlflow_experiment: str = "hone"
    """MLflow: the experiment; it is made where there is none."""
    samples: bool = False
    """Send transcripts too: the attempts of each step with the highest and the lowest reward, and those that a health
    rule names. Without it no word of a prompt or an answer is sent."""

    def named(self) -> dict[TrackerName, str]:
        """The trackers in use, and the setting that named each."""
        keys: dict[TrackerName, str] = {
            "wandb": "wandb_project", "tensorboard": "tensorboard", "mlflow": "mlflow",
        }  # fmt: skip
        return {name: f"track.{key}" for name, key in keys.items() if getattr(self, key)}
