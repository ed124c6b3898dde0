"""The `[track]` section of hone.toml: experiment trackers that receive the figures of campaigns and of the learner.

Owns: names and defaults. Refuses: keys. Each tracker finds its own in the usual place (docs/metrics.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

TrackerName = Literal["wandb", "tensorboard", "mlflow"]  # each is also the name of the tracker's module and extra


class TrackSettings(BaseModel):
    """Where `hone train` and `hone learn` send their figures (docs/metrics.md lists them)."""

    model_config = ConfigDict(extra="forbid")

    wandb_project: str | None = None
    """Weights & Biases: the project. The key comes from `wandb login` or WANDB_API_KEY."""
    wandb_name: str | None = None
    """Weights & Biases: the name of the run. Default: the campaign's or alias's name."""
    wandb_entity: str | None = None
    """Weights & Biases: the team or user that owns the project. Default: the key's."""
    wandb_mode: Literal["online", "offline"] = "online"
    """`offline`: nothing is sent. `wandb sync` sends it later, from `tracking/wandb` in the data folder."""
    tensorboard: Path | None = None
    """TensorBoard: the folder. Each run gets a folder of its own in it."""
    mlflow: str | None = None
    """MLflow: the tracking URI, such as `http://127.0.0.1:5000` or `sqlite:///mlflow.db`."""
    mlflow_experiment: str = "hone"
    """MLflow: the experiment. It is created if it does not exist."""
    samples: bool = False
    """Send transcripts too: of each step the attempts with the highest and the lowest reward, and the attempts that a
    health rule names. If false, no text of a prompt or an answer is sent."""

    def named(self) -> dict[TrackerName, str]:
        """The trackers in use, and the setting that named each."""
        keys: dict[TrackerName, str] = {
            "wandb": "wandb_project", "tensorboard": "tensorboard", "mlflow": "mlflow",
        }  # fmt: skip
        return {name: f"track.{key}" for name, key in keys.items() if getattr(self, key)}
