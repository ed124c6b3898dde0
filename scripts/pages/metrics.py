"""docs/metrics.md: what trackers of experiments are sent, from the table that tests hold the sending to.

Owns: the page's words. Refuses: the names (`trainer.trackers.figure_names`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from scripts.pages.table import code, table
from trainer.trackers.figure_names import figure_names

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
_HEAD = """\
# Metrics in trackers of experiments

`hone train` and `hone learn` can send their figures to Weights & Biases, TensorBoard and MLflow. Name one, or all:

```toml
[track]
wandb_project = "support"              # pip install 'hone-proxy[wandb]'
tensorboard = "runs"                   # pip install 'hone-proxy[tensorboard]'
mlflow = "http://127.0.0.1:5000"       # pip install 'hone-proxy[mlflow]'
```

Each is an extra, imported only where it is named, in a process of its own. Where one is missing, `hone train` says so
as it starts, and so does `hone doctor`.

- **A campaign is one run**, found by its id when it is gone on with (`hone train --resume`): no step is sent twice, and
  what was not sent before is sent then. An alias that `hone learn` trains is one run too, of all that it ever learns;
  what its tracker missed stays missing.
- **A tracker never holds a step.** One that fails is told of once and sent nothing more. At the end of a campaign it
  has 30 seconds for what it lacks.
- **What is sent**: the figures below; of `[trainer]` and `[campaign]` the numbers, switches and choices; the names of
  the campaign and of its versions; why the campaign ended. **What is not**: keys, texts, paths and commands of the
  settings, the environment, code, git, console, figures and name of the machine, packages. Transcripts only where
  `track.samples` is true: then `sample/highest` and `sample/lowest` of each step, and `sample/alarm_RULE_N`.
- **Keys** are found where each library always looks (`wandb login`, `WANDB_API_KEY`, `MLFLOW_TRACKING_TOKEN`): Hone has
  no setting for them.
- **Offline**: with `wandb_mode = "offline"` nothing leaves the machine until `wandb sync`; its files lie in
  `tracking/wandb` in the data folder. TensorBoard's are in a folder of the run's name in yours. MLflow takes
  `sqlite:///mlflow.db` too.
- A character that MLflow refuses in a name becomes `_` there.

## The figures

A word in capitals stands for a name: of a part of the reward, a rule, a model. The step is the campaign's, or the
learner's. Shares are 0 to 1.
"""


def page() -> str:
    """The whole page."""
    rows = [[code(name.pattern), name.unit, name.when, name.what] for name in figure_names()]
    made = "(Made from the table in `trainer/trackers/figure_names.py` by `python -m scripts.pages --write`.)\n"
    return "\n".join([_HEAD, table(["name", "unit", "when", "what it is"], rows), made])
