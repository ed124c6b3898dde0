"""The refusal of a family that the vLLM of this Python does not serve: one sentence for all commands.

Refuses: loading vLLM. What it serves is read from its sources.
"""

from __future__ import annotations

from recorder.models.base_model import ModelProfile
from recorder.models.refusals import BaseRefusal
from recorder.processes import python_probe


def refuse_family(model: ModelProfile) -> BaseRefusal | None:
    """The refusal of a model that the vLLM of this Python does not serve; None if it does, or it cannot be known."""
    if "auto_map" in model.config or model.architecture is None:  # auto_map: the model brings its own code
        return None
    if model.is_known or python_probe.serves(model.architecture, model.family) is not False:
        return None
    return BaseRefusal(
        f"the base {model.name!r} is of the family {model.family!r} ({model.architecture}), which the installed vLLM "
        "does not serve.",
        "Use a model of a family that it serves, or install a vLLM that knows this one.",
    )
