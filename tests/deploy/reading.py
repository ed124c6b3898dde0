"""What the tests of deploy/ read: files as they are, YAML as data, containers of both kinds, tools to check with."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
CLUSTERS = ("one-gpu", "several-engines", "several-nodes", "bucket")
BELOW = {
    "several-nodes": "several-engines",
    "bucket": "several-engines",
}  # whose files stand where a folder has none of the same name
_OURS = re.compile(r"(?:registry\.example/)?hone(?:-learner(?:-cpu)?)?:")


def tool(name: str, package: str) -> str:
    """The path of a program. Without it a test is skipped, and fails in CI, which installs it."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is not None:
        return found
    why = f"{name} is not installed ({package})"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@cache
def documents(file: Path) -> list[dict[str, Any]]:
    """The YAML documents of a file."""
    return list(YAML(typ="safe").load_all(file.read_text("utf-8")))


def manifests(cluster: str) -> list[dict[str, Any]]:
    """Every object of one of Kubernetes' folders."""
    files = {file.name: file for name in (BELOW.get(cluster), cluster) if name for file in _files(name)}
    return [one for name in sorted(files) for one in documents(files[name])]


def _files(cluster: str) -> list[Path]:
    return sorted((DEPLOY / "kubernetes" / cluster).glob("*.yaml"))


def of_kind(cluster: str, *kinds: str) -> dict[str, dict[str, Any]]:
    """Objects of these kinds, by name."""
    return {one["metadata"]["name"]: one for one in manifests(cluster) if one["kind"] in kinds}


def pods(cluster: str) -> dict[str, dict[str, Any]]:
    """What runs, by name: the specification of its pod."""
    found = of_kind(cluster, "Deployment", "StatefulSet", "Job")
    return {name: one["spec"]["template"]["spec"] for name, one in found.items()}


def services() -> dict[str, dict[str, Any]]:
    """The services of compose.yaml."""
    found: dict[str, dict[str, Any]] = documents(COMPOSE)[0]["services"]
    return found


@dataclass(frozen=True)
class Container:
    """One container, wherever it is written: what it runs, with which variables, and what is mounted where."""

    where: str
    image: str
    argv: tuple[str, ...]
    env: dict[str, str | None] = field(default_factory=dict)
    mounts: frozenset[str] = frozenset()


def containers() -> Iterator[Container]:
    """Every container of compose.yaml and of all clusters."""
    for name, service in services().items():
        yield Container(
            f"compose: {name}",
            service["image"],
            tuple(map(str, [*_entrypoint(service), *service.get("command", [])])),
            service.get("environment", {}),
            frozenset(_compose_mounts(service)),
        )
    for cluster in CLUSTERS:
        for name, pod in pods(cluster).items():
            for one in pod["containers"]:
                yield Container(
                    f"{cluster}: {name}",
                    one["image"],
                    tuple(map(str, [*one.get("command", _default(one["image"])), *one.get("args", [])])),
                    {variable["name"]: variable.get("value") for variable in one.get("env", [])},
                    frozenset(mount["mountPath"] for mount in one["volumeMounts"]),
                )


def is_ours(image: str) -> bool:
    """Whether it is one of Hone's images."""
    return _OURS.match(image) is not None


def hones() -> list[Container]:
    """Those that run `hone`, in Hone's images."""
    return [one for one in containers() if is_ours(one.image) and one.argv[0] in ("hone", "sh")]


def _entrypoint(service: dict[str, Any]) -> list[str]:
    return list(service.get("entrypoint") or _default(service["image"]))


def _default(image: str) -> list[str]:
    return ["hone"] if is_ours(image) else []


def _compose_mounts(service: dict[str, Any]) -> Iterator[str]:
    for volume in service.get("volumes", []):
        yield str(volume).split(":")[1]
    yield from (config["target"] for config in service.get("configs", []))
    yield from (f"/run/secrets/{name}" for name in service.get("secrets", []))


def hone_lines(text: str) -> Iterator[list[str]]:
    """The `hone …` commands of a shell script, as words."""
    for line in re.split(r"&&|\n", text):
        words = line.split()
        if words[:1] == ["hone"]:
            yield words[1:]


def written() -> dict[str, str]:
    """Every file of deploy/ and the page about it, by its path from the repository's root."""
    files = [*(path for path in DEPLOY.rglob("*") if path.is_file()), ROOT / "docs" / "deploy.md"]
    ignored = {DEPLOY / "compose" / ".env"}
    return {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for path in files
        if path not in ignored and path.parent != DEPLOY / "compose" / "secrets"
    }
