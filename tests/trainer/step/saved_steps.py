"""Two steps on made-up groups with the settings of each example: what a change of the trainer must not change.

`python -m tests.trainer.step.saved_steps` writes what the tree at hand computes into saved_steps.safetensors. It is
written from a tree whose steps are trusted, and never to make a test pass.
"""

from __future__ import annotations

import json
import platform
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from recorder.views.trajectories.shapes import GroupView
from tests.trainer import building
from tests.trainer.plain_settings import PLAIN
from trainer.batch.rows import RowBasis
from trainer.objectives.group import weigh_groups
from trainer.objectives.group_rows import group_rows
from trainer.policy.optim import learning_rate
from trainer.settings import TrainerSettings
from trainer.step.core import TrainerCore
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import PhaseSeconds, StartVersion

FILE: Final = Path(__file__).with_name("saved_steps.safetensors")
_EXAMPLES: Final = Path(__file__).parents[3] / "examples"
_SMALL: Final = {"device": "cpu", "rank": 2, "alpha": 4.0, "token_budget": 96, "target": ["q_proj", "v_proj"]}
# What no example sets. These and each example's hone.toml are over the defaults of when they were saved (`PLAIN`).
_OTHERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "dapo_kl": {"recipe": "dapo", "kl_coef": 0.05, "lr": 3e-3, "substeps": 2},
    "gspo": {"recipe": "gspo", "lr": 3e-3, "weight_decay": 0.01},
}
_REWARDS: Final = ((1.0, 0.0, 0.3), (0.2, 0.9, 0.9, 0.1), (0.0, 1.0))


def machine() -> dict[str, str]:
    """What decides how a sum is rounded."""
    return {"torch": torch.__version__, "cpu": _cpu(), "kernels": torch.backends.cpu.get_cpu_capability()}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def cases() -> dict[str, TrainerSettings]:
    """The settings by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for file in sorted(_EXAMPLES.glob("*/hone.toml")):
        if section := tomllib.loads(file.read_text("utf-8")).get("trainer"):
            found[file.parent.name] = section
    return {name: TrainerSettings(**{**PLAIN, **given, **_SMALL}) for name, given in {**found, **_OTHERS}.items()}


def take_steps(base: Path, settings: TrainerSettings, data: Path) -> dict[str, Tensor]:
    """The adapter after two steps from the untrained one."""
    trainer = TrainerCore(base, settings, TrainerFolders.of(data))
    trainer.go_to(StartVersion("v0", None))
    for step in range(2):
        basis = RowBasis("base", ["v3", "v2"], max_age=4, max_tokens=96)
        groups = [
            group_rows(_group(number, step), _rewards(number), basis, rule=settings.advantage)
            for number in range(len(_REWARDS))
        ]
        rows = weigh_groups(groups, settings)
        trainer.step(rows, learning_rate(settings, step), lambda: False, PhaseSeconds())
    return trainer.policy.state()


def _rewards(number: int) -> dict[str, float | None]:
    return {f"t{number}-{member}": reward for member, reward in enumerate(_REWARDS[number])}


def _group(number: int, step: int) -> GroupView:
    """Trajectories of two turns; the second call of each third one rewrites its history."""
    members = []
    for member in range(len(_REWARDS[number])):
        seed = 1000 * step + 100 * number + member
        prompt = building.random_ids(20, 100 * step + number)
        first, second = building.random_ids(5 + member, 7 * seed + 1), building.random_ids(4, 7 * seed + 2)
        later = prompt + first + building.random_ids(3, 7 * seed + 3)
        begun = [4, *later[3:]] if member % 3 == 2 else later
        version = "v2" if member == 1 else "v3"
        calls = [
            building.call(1, prompt, _choice(first, seed), version_id=version),
            building.call(2, begun, _choice(second, seed + 50), version_id=version),
        ]
        members.append(building.trajectory(*calls, id=f"t{number}-{member}"))
    return building.group(*members, id=f"group-{number}")


def _choice(ids: list[int], seed: int) -> Any:
    random = torch.Generator().manual_seed(seed)
    logprobs = (-3.5 - torch.rand(len(ids), generator=random)).tolist()
    return building.choice(ids, logprobs=logprobs)


def load() -> tuple[dict[str, str], dict[str, dict[str, Tensor]]]:
    """The machine that the steps were saved on, and the adapter by the name of its settings."""
    found: dict[str, dict[str, Tensor]] = {}
    with safe_open(FILE, "pt") as file:
        for key in file.keys():  # noqa: SIM118 - it is no mapping
            name, _, parameter = key.partition("/")
            found.setdefault(name, {})[parameter] = file.get_tensor(key)
        return json.loads(file.metadata()["machine"]), found


def main() -> None:
    """Compute and write."""
    from tests.trainer.conftest import save_tiny_base

    made: dict[str, Tensor] = {}
    with tempfile.TemporaryDirectory() as folder:
        base = save_tiny_base(Path(folder) / "base")
        for name, settings in cases().items():
            adapter = take_steps(base, settings, Path(folder) / name)
            made |= {f"{name}/{parameter}": tensor for parameter, tensor in adapter.items()}
    save_file(made, FILE, {"machine": json.dumps(machine())})


if __name__ == "__main__":
    main()
