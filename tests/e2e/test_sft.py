"""`hone sft` before a real vLLM: a file first, then what the version that it made answered, with its recorded ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import CONFIG, Stack, served_beside, wait_for
from tests.stores import Stores

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

ANSWER = "Please ask the other desk."
SETTINGS = CONFIG + "\n[trainer.sft]\nlr = 3e-3\nepochs = 8\nbatch_tokens = 64\n"
CITIES = ("Rome", "Oslo", "Lima", "Cairo", "Delhi", "Paris", "Quito", "Seoul", "Tunis", "Vaduz", "Riga", "Bern")


def conversation(city: str) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": f"Where is the office in {city}?"},
        {"role": "assistant", "content": ANSWER},
    ]


@pytest.fixture
def desk(stack: Stack, stores: Stores, tmp_path: Path) -> Iterator[Stack]:
    with (
        stores.unmade(tmp_path / "data") as recording,
        served_beside(stack, tmp_path, recording, SETTINGS) as running,
    ):
        yield running


def fit(desk: Stack, *given: str) -> dict[str, object]:
    """What `hone sft` says, once its version is live."""
    said = json.loads(desk.hone("sft", "--alias", "helpdesk", "--json", *given, timeout_s=300))

    def live() -> bool:
        versions = json.loads(desk.hone("versions", "helpdesk", "--json"))
        return any(one["name"] == said["version"] and one["state"] == "live" for one in versions)

    wait_for(f"{said['version']} in service", live, 120)
    return dict(said)


def ask(desk: Stack, model: str, city: str, number: int) -> str:
    body = {"model": model, "messages": conversation(city)[:1], "max_tokens": 24}
    with desk.proxy() as http:
        answer = http.post(f"/t/{model.replace('@', '-')}-{number}/v1/chat/completions", json=body)
        http.post(f"/t/{model.replace('@', '-')}-{number}/hone/v1/done", json={}).raise_for_status()
    return str(answer.raise_for_status().json()["choices"][0]["message"]["content"])


def test_a_version_answers_as_a_file_does_and_the_next_one_as_its_recorded_answers(desk: Stack, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps({"messages": conversation(city)}) + "\n" for city in CITIES[:8]))
    asked = CITIES[8:]
    assert ANSWER not in {ask(desk, "helpdesk", city, number) for number, city in enumerate(asked)}
    first = fit(desk, "--from", str(file))
    assert first["version"] == "helpdesk@1"
    answers = [ask(desk, "helpdesk", city, 10 + number) for number, city in enumerate(asked * 2)]
    assert answers.count(ANSWER) >= len(answers) - 2  # at temperature 1
    second = fit(desk, "--where", "version = helpdesk@1")
    assert second["version"] == "helpdesk@2"
    shown = second["demonstrations"]
    assert isinstance(shown, dict)
    assert (shown["demonstrations"], shown["rendered_tokens"]) == (len(answers), 0)
