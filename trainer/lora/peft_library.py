"""What the trainer uses of PEFT, imported without bitsandbytes. Others import PEFT's names from here.

PEFT imports bitsandbytes wherever it is installed, and that imports torch's compiler: a second of each start. PEFT
needs it for bitsandbytes' own layers, of which the trainer has none (`trainer.quantization.nf4` calls its functions).

Refuses: code that uses those names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

_LAYERS: Final = "bitsandbytes"


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Within: a package that was not imported yet is not found."""
    modules = cast("dict[str, Any]", sys.modules)
    if package in modules:
        yield
        return
    modules[package] = None  # as Python itself marks what must not be imported
    try:
        yield
    finally:
        del modules[package]


with _hidden(_LAYERS):
    from peft import LoraConfig, PeftModel, get_peft_model
    from peft.import_utils import is_bnb_4bit_available, is_bnb_available
    from peft.tuners.lora.layer import ParamWrapper
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import transformers_weight_conversion

    is_bnb_available(), is_bnb_4bit_available()  # PEFT asks again for each layer, and keeps the first answer

__all__ = [
    "BaseTunerLayer",
    "LoraConfig",
    "ParamWrapper",
    "PeftModel",
    "get_peft_model",
    "transformers_weight_conversion",
]
