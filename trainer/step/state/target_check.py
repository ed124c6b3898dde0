"""What `hone doctor` says about `trainer.target`: the share of the base's weights that it adapts.

Refuses: choosing what is adapted (`trainer.lora.targets`), and the sentence (`recorder.models.experts`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from recorder.base.findings import Finding, FindingLevel
from trainer.errors import TrainerError
from trainer.policy.base_model import explain_target
from trainer.settings import TrainerSettings

CHECK: Final = "trainer target"


def check_target(settings: TrainerSettings) -> list[Finding]:
    """One finding; none if the base is not a folder on this machine."""
    if settings.base is None or not Path(settings.base).is_dir():
        return []
    try:
        return [Finding(CHECK, FindingLevel.FINE, explain_target(Path(settings.base), settings))]
    except TrainerError as e:
        return [Finding(CHECK, FindingLevel.WRONG, f"{e}")]
