"""What people and programs see of Hone from outside, written into a folder: to show that a change left it as it was.

    python -m scripts.surface FOLDER [--data CORPUS]     in each of two trees
    diff -r FOLDER OTHER

Owns: every `--help`, `hone config --json`, the OpenAPI schema with its components written out (their names are ours),
the names of the metrics, and the raw export of a recorded corpus. It asks the command line and a running proxy alone,
so that it runs unchanged in a tree of another layout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

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
    """What one command prints. It fails where the command does."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HONE_")}
    environment |= {"COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "proxy.cli", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout


def helps(folder: Path, cwd: Path) -> None:
    """The help of every command, and of every command below one."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        names = waiting.pop()
        text = hone(*names, "--help", cwd=cwd)
        (folder / f"help{''.join('-' + n for n in names)}.txt").write_text(text)
        _, _, listed = text.partition("Commands:")
        waiting += [(*names, found) for found in re.findall(r"^  ([a-z][a-z-]*)(?: |$)", listed, re.MULTILINE)]


def inlined(value: Any, schema: dict[str, Any], above: tuple[str, ...] = ()) -> Any:
    """A part of the schema with what it refers to written in its place."""
    if isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str):
            if target in above:
                return "itself"
            found: Any = schema
            for part in target.removeprefix("#/").split("/"):
                found = found[part]
            return inlined(found, schema, (*above, target))
        return {key: inlined(inner, schema, above) for key, inner in value.items() if key != "title"}
    if isinstance(value, list):
        return [inlined(inner, schema, above) for inner in value]
    return value


def get(url: str) -> str:
    """A page of a proxy that may still be starting."""
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
    """The schema and the metrics of a proxy without traffic."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
    """Write all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="a data folder with recorded calls")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        cwd = Path(temporary)
        (cwd / "hone.toml").write_text(CONFIG)
        helps(asked.folder, cwd)
        config = hone("config", "--json", cwd=cwd).replace(str(cwd), "HERE")
        (asked.folder / "config.json").write_text(config)
        served(asked.folder, cwd)
        if asked.data is not None:
            shutil.copytree(asked.data, cwd / "corpus")
            hone("db", "upgrade", "--data", "corpus", cwd=cwd)
            lines = hone("export", "--format", "raw", "--data", "corpus", cwd=cwd)
            (asked.folder / "export.jsonl").write_text(lines)


if __name__ == "__main__":
    main()
