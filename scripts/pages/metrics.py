"""docs/metrics.md: what experiment trackers receive, from the table that a test compares with the figures sent.

Owns: the page's text. Refuses: the names (`trainer.trackers.event_figures`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from scripts.pages.table import code, table
from trainer.trackers.event_figures import figure_names

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
_HEAD = """\
# Metrics in experiment trackers

**For:** people who follow training in a tracker. **You will have:** Hone's figures there, and the meaning of each.

`hone train` and `hone learn` can send their figures to Weights & Biases, TensorBoard and MLflow. Name one, or all:

```toml
[track]
wandb_project = "support"              # pip install 'hone-proxy[wandb]'
tensorboard = "runs"                   # pip install 'hone-proxy[tensorboard]'
mlflow = "http://127.0.0.1:5000"       # pip install 'hone-proxy[mlflow]'
```

Each tracker is an extra of the package. Hone imports it only if `[track]` names it, in a process of its own. If one is
missing, `hone train` reports it at its start, and so does `hone doctor`.

- **A campaign is one run of the tracker.** `hone train --resume` finds it by its id. It sends no step twice, and sends
  what was not sent before.
- **An alias that `hone learn` trains is one run too**, for everything it ever learns. What its tracker missed stays
  missing.
- **A tracker never delays a step.** Hone reports a tracker that fails once, and sends it nothing more. At the end of a
  campaign, a tracker has 30 seconds to receive what it lacks.
- **Sent**: the figures below; the numbers, switches and choices of `[trainer]` and `[campaign]`; the names of the
  campaign and its versions; why the campaign ended.
- **Not sent**: keys; texts, paths and commands of the settings; the environment, code, git, console and packages; the
  machine's figures and name.
- **Transcripts** are sent only if `track.samples` is true: `sample/highest` and `sample/lowest` of each step, and
  `sample/alarm_RULE_N`.
- **Keys**: each library finds its key where it always looks (`wandb login`, `WANDB_API_KEY`, `MLFLOW_TRACKING_TOKEN`).
  Hone has no setting for them.
- **Offline**: with `wandb_mode = "offline"`, nothing leaves the machine until `wandb sync`. The files are in
  `tracking/wandb` in the data folder.
- **Places**: TensorBoard's files are in your folder, in a subfolder with the run's name. MLflow also accepts
  `sqlite:///mlflow.db`. A character that MLflow refuses in a name becomes `_` there.

## The figures

A word in capitals is a placeholder for a name: a part of the reward, a rule or a model. The step is the campaign's or
the learner's. Shares are between 0 and 1.
"""


def page() -> str:
    """Return the whole page."""
    rows = [[code(name.pattern), name.unit, name.when, name.what] for name in figure_names()]
    made = "(Made from the table in `trainer/trackers/event_figures.py` by `python -m scripts.pages --write`.)\n"
    return "\n".join([_HEAD, table(["name", "unit", "when", "what it is"], rows), made])
