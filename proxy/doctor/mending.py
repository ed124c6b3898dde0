"""The exact lines that mend an environment, for the Python that it belongs to.

Owns: how packages are put into and taken out of a Python, with pip or, where it has none (`uv tool`), with uv.
Refuses: running them, and knowing what is wrong.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

# PyTorch's own index: its CPU builds are on no other.
TORCH_CPU_WHEELS: Final = "https://download.pytorch.org/whl/cpu"

Extra = Literal["cpu", "cuda", "postgres", "wandb", "tensorboard", "mlflow"]


@dataclass(frozen=True, slots=True)
class Installer:
    """Who installs into one Python."""

    python: str
    has_pip: bool

    def install(self, extra: Extra) -> str:
        """The line that installs one of Hone's extras."""
        package = shlex.quote(f"hone-proxy[{extra}]")
        return f"{self._words('install')} {package}{self._cpu_torch() if extra == 'cpu' else ''}"

    def uninstall(self, packages: Sequence[str]) -> str:
        """The line that takes packages out."""
        return " ".join([self._words("uninstall"), *(["-y"] if self.has_pip else []), *packages])

    def replace(self, packages: Sequence[str], extra: Extra) -> str:
        """The line that takes packages out and installs an extra in their place."""
        return f"{self.uninstall(packages)} && {self.install(extra)}"

    def _words(self, what: str) -> str:
        python = shlex.quote(self.python)
        return f"{python} -m pip {what}" if self.has_pip else f"uv pip {what} --python {python}"

    def _cpu_torch(self) -> str:
        # uv takes a package from the first index that knows its name, so it has an option of its own for this one.
        return f" --extra-index-url {TORCH_CPU_WHEELS}" if self.has_pip else " --torch-backend cpu"
