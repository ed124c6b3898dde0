"""Presets: the values of published recipes, as defaults under every other source (`campaign.preset`).

Owns: the values. Refuses: deciding anything: each is an ordinary setting, and hone.toml, a variable or a flag wins.
docs/tasks.md sets them beside the recipe's own names; a test holds it to this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "rlvr": {
        "trainer.rank": 32,
        "trainer.lr": 4e-5,
        "trainer.kl_coef": 0.0,
        "trainer.substeps": 1,
        "campaign.agent": "hone:answer",
        "campaign.group_size": 8,
        "campaign.scenarios_per_step": 32,
        "campaign.max_tokens": 2048,
        "campaign.temperature": 1.0,
        "campaign.seed": 42,
        "campaign.val_every": 10,
        "judge.rewards": [{"kind": "rubric"}],
        "judge.retries": 3,
        "judge.temperature": 0.0,
    },
}
