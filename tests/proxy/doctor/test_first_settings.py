"""What a first hone.toml says: whatever was found, the file loads and says that."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.doctor.discovery import HEAD, JUDGES, Discovery, RunningEngine, first_settings
from proxy.settings.hone import HoneSettings
from proxy.settings.loader import load_settings
from proxy.settings.sections import MODEL_NAME
from proxy.settings.toml_writer import as_toml, describe_setting

pytestmark = pytest.mark.usefixtures("bare")

NAMES = st.from_regex(MODEL_NAME, fullmatch=True)
HUB_IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}(/[A-Za-z0-9]{1,20})?", fullmatch=True)
ENGINES = st.builds(
    RunningEngine, url=st.just("http://127.0.0.1:8000"), model=NAMES | st.none(), root=HUB_IDS | st.none()
)
FOUND = st.builds(
    Discovery,
    engine=st.none() | ENGINES,
    model=st.none() | HUB_IDS,
    device=st.sampled_from(["cpu", "cuda"]),
    gpus=st.lists(st.floats(4, 200), max_size=4).map(tuple),
    judge_key=st.none() | st.sampled_from(sorted(JUDGES)),
)
NOTHING = Discovery(engine=None, model=None, device="cpu", gpus=(), judge_key=None)


def written(found: Discovery, alias: str = "agent", base: str | None = None) -> HoneSettings:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hone.toml"
        file.write_text(as_toml(HEAD, first_settings(found, alias, base)), "utf-8")
        return load_settings(file, {}).settings


@given(found=FOUND, alias=NAMES, base=st.none() | HUB_IDS)
def test_whatever_was_found_the_file_loads_and_has_settings_alone(
    found: Discovery, alias: str, base: str | None
) -> None:
    for line in first_settings(found, alias, base):
        describe_setting(line.path)
    settings = written(found, alias, base)
    assert list(settings.declared_aliases()) == [alias]
    assert settings.engine.base is not None or settings.engine.urls
    assert settings.judge.model == JUDGES.get(found.judge_key or "", "")


def test_what_is_off_loads_too_when_it_is_put_in_force(tmp_path: Path) -> None:
    text = as_toml(HEAD, first_settings(NOTHING, "agent", None))
    assert written(NOTHING).judge.model == ""
    file = tmp_path / "hone.toml"
    file.write_text(text.replace("# model = ", "model = "))
    assert load_settings(file, {}).settings.judge.model in JUDGES.values()


def test_an_engine_that_runs_is_used_and_one_that_is_asked_for_is_started() -> None:
    there = RunningEngine("http://127.0.0.1:8000", "qwen", "Qwen/Qwen3-0.6B")
    found = Discovery(there, None, "cpu", (), None)
    used = written(found)
    assert used.engine.urls == ["http://127.0.0.1:8000"]
    assert used.engine.base == "Qwen/Qwen3-0.6B"
    assert used.aliases["agent"].base_model == "qwen"
    assert written(found, base="org/mine").engine.urls == []


@pytest.mark.parametrize(
    ("count", "of_engine", "of_trainer"),
    [(1, [], []), (2, [1], [0]), (3, [2], [0, 1]), (4, [2, 3], [0, 1]), (8, [4, 5, 6, 7], [0, 1, 2, 3])],
)
def test_several_gpus_are_divided_also_without_a_plan(count: int, of_engine: list[int], of_trainer: list[int]) -> None:
    settings = written(Discovery(None, None, "cuda", (80.0,) * count, None))
    assert settings.engine.gpu_memory_utilization is None
    assert (settings.engine.gpus, settings.trainer.gpus) == (of_engine, of_trainer)
    assert settings.engine.share == "split"
