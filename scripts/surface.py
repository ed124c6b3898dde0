"""Write Hone's external interface into a folder, to show that a change did not alter it.

    python -m scripts.surface FOLDER [--data CORPUS]     in each of two trees
    diff -r FOLDER OTHER

Owns: every `--help`, `hone config --json`, the OpenAPI schema with its components written out (their names are ours),
the names of the metrics, and the raw export of a recorded corpus. It uses only the command line and a running proxy,
so that it works unchanged in a tree of another layout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from examples.running.programs import free_ports

ROOT = Path(__file__).resolve().parent.parent
CONFIG = """
[engine]
urls = ["http://127.0.0.1:9"]
[aliases.helpdesk]
base_model = "base"
[judge]
model = "openai/gpt-5-mini"
"""
STARTS_WITHIN_S = 60.0


def hone(*arguments: str, cwd: Path) -> str:
    """Return the output of one command. Raises CalledProcessError if the command fails."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HONE_")}
    environment |= {"COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "proxy.cli", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout


def helps(folder: Path, cwd: Path) -> None:
    """Write the help of every command and subcommand."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        names = waiting.pop()
        text = hone(*names, "--help", cwd=cwd)
        (folder / f"help{''.join('-' + n for n in names)}.txt").write_text(text)
        _, _, listed = text.partition("Commands:")
        waiting += [(*names, name) for name in re.findall(r"^  ([a-z][a-z-]*)(?: |$)", listed, re.MULTILINE)]


def inlined(value: Any, schema: dict[str, Any], above: tuple[str, ...] = ()) -> Any:
    """Return a part of the schema with references replaced by their targets."""
    if isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str):
            if target in above:
                return "itself"
            part_of_schema: Any = schema
            for part in target.removeprefix("#/").split("/"):
                part_of_schema = part_of_schema[part]
            return inlined(part_of_schema, schema, (*above, target))
        return {key: inlined(inner, schema, above) for key, inner in value.items() if key != "title"}
    if isinstance(value, list):
        return [inlined(inner, schema, above) for inner in value]
    return value


def get(url: str) -> str:
    """Return a page of a proxy that may still be starting."""
    ends = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return str(answer.read().decode())
        except urllib.error.URLError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)


def served(folder: Path, cwd: Path) -> None:
    """Write the schema and the metrics of a proxy without traffic."""
    [port] = free_ports(1)
    command = [sys.executable, "-W", "ignore", "-m", "proxy.cli", "serve", "--port", str(port), "--data", "served"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    proxy = subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        schema = json.loads(get(f"http://127.0.0.1:{port}/schema/openapi.json"))
        metrics = get(f"http://127.0.0.1:{port}/metrics")
    finally:
        proxy.terminate()
        proxy.wait(30)
    paths = inlined(schema["paths"], schema)
    (folder / "schema.json").write_text(json.dumps(paths, indent=1, sort_keys=True))
    names = sorted(set(re.findall(r"^# TYPE (\S+ \S+)$", metrics, re.MULTILINE)))
    (folder / "metrics.txt").write_text("\n".join(names))


def main() -> None:
    """Write all files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="a data folder with recorded calls")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        cwd = Path(temporary)
        (cwd / "hone.toml").write_text(CONFIG)
        helps(options.folder, cwd)
        config = hone("config", "--json", cwd=cwd).replace(str(cwd), "HERE")
        (options.folder / "config.json").write_text(config)
        served(options.folder, cwd)
        if options.data is not None:
            shutil.copytree(options.data, cwd / "corpus")
            hone("db", "upgrade", "--data", "corpus", cwd=cwd)
            lines = hone("export", "--format", "raw", "--data", "corpus", cwd=cwd)
            (options.folder / "export.jsonl").write_text(lines)


if __name__ == "__main__":
    main()
