"""What `hone doctor` says about the training service of `trainer.backend = "tinker"`: settings, key, and its bases.

Refuses: training anything there: one session is opened and ended, and no model is made.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Final

from recorder.base.findings import Finding, FindingLevel
from trainer.errors import TrainerError
from trainer.settings import TrainerSettings
from trainer.step.tinker.price import explain_price
from trainer.step.tinker.requirements import base_name, require_base, require_supported
from trainer.step.tinker.secret import guarded_logs, read_key

CHECK: Final = "training service"
_PATIENCE_S: Final = 20.0  # the library alone needs some seconds to give up one request
_PACKAGE: Final = "Install it: pip install 'hone-proxy[tinker]'"


def check_service(settings: TrainerSettings, share: str) -> list[Finding]:
    """One finding; none with another back end. `share`: `engine.share`."""
    if settings.backend != "tinker":
        return []
    try:
        require_supported(settings, share)
        name = base_name(settings)
        if importlib.util.find_spec("tinker") is None:
            return [Finding(CHECK, FindingLevel.WRONG, "the package tinker is not installed.", f"{_PACKAGE}.")]
        longest = _ask(settings, name)
    except TrainerError as e:
        return [Finding(CHECK, FindingLevel.WRONG, f"{e}.")]
    rows = "rows of any length" if longest is None else f"rows of up to {longest:,} tokens"
    return [Finding(CHECK, FindingLevel.FINE, f"it knows the key, and trains {name} with {rows}. {explain_price()}")]


def _ask(settings: TrainerSettings, name: str) -> int | None:
    """The longest row that the service takes of a base. Raises `TinkerUnsupported` if it does not train it."""
    from trainer.step.tinker.session import Session  # with the library, which takes a second to import

    key = read_key(os.environ)
    patience_s = min(settings.tinker.answer_timeout_s, _PATIENCE_S)
    with guarded_logs(key):
        session = Session(settings.tinker.model_copy(update={"answer_timeout_s": patience_s}), key)
        try:
            return require_base(session.load_capabilities(), name, settings.token_budget)
        finally:
            session.close()
