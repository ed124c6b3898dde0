"""The environment in which Hone starts the user's own code.

Owns: the variables that a Python program needs, adding those that the user names, and finding withheld variables in an
error's text. Refuses: everything else. Variables that are not listed, keys above all, are not passed on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import Final

_NAMES: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR", "TEMP", "TMP",
    "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NVIDIA_VISIBLE_DEVICES",
    "HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TOKENIZERS_PARALLELISM",
})  # fmt: skip
_BEGINNINGS: Final = ("LC_", "PYTHON", "XDG_", "CUDA_", "OMP_", "MKL_", "OPENBLAS_")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})  # in lower and upper case


def child_environment(named: Collection[str] = ()) -> dict[str, str]:
    """Return the part of Hone's environment that a Python program needs, and the variables that the user names."""
    return {name: value for name, value in os.environ.items() if name in named or _needed(name)}


def list_withheld_variables(text: str, named: Collection[str] = ()) -> list[str]:
    """Return the variables of Hone's environment that occur in a text and were not passed on."""
    kept_back = os.environ.keys() - child_environment(named).keys()
    return sorted(kept_back.intersection(_WORD.findall(text)))


def _needed(name: str) -> bool:
    return name in _NAMES or name.startswith(_BEGINNINGS) or name.lower() in _PROXIES
