"""Token continuity before a real vLLM whose template drops thinking: rows a run, cached tokens, exact logprobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from recorder.views.trajectories.shapes import TrajectoryView
from recorder.views.trajectories.transcripts import find_trajectory, load_trajectory
from tests.e2e.conftest import MODEL, THINKING_TEMPLATE, Stack, at_once, served_beside
from tests.e2e.test_capture import QUESTION, TOOLS
from tests.stores import Stores
from trainer.batch.row_builder import Row
from trainer.batch.rows import RowBasis, trajectory_rows

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

BLOCK = 128  # of vLLM's prefix cache on a CPU
TURNS = 8
TRIES = 4  # runs at once
ENGINE = f"""
[aliases.helpdesk]

[engine]
base = "{MODEL}"
name = "tiny-qwen3"
chat_template = "{THINKING_TEMPLATE}"
reasoning_parser = ""
max_model_len = 2048
max_lora_rank = 8
"""
ON = ENGINE + '[proxy]\ntoken_continuity = "on"\n'
LONG_SYSTEM = {"role": "system", "content": " ".join([QUESTION[0]["content"]] * 6)}


Runs = dict[str, tuple[str, list[dict[str, Any]]]]


@dataclass(frozen=True)
class Proxies:
    """Two proxies before one engine, their data folders, and the stores of these."""

    urls: dict[str, str]
    data: dict[str, Path]
    recording: dict[str, RecorderSettings]
    stack: Stack


@contextlib.contextmanager
def both(stack: Stack, folder: Path, on: RecorderSettings, off: RecorderSettings) -> Iterator[Proxies]:
    """A proxy with continuity, and one without, before a stack's engine; each has its own store."""
    with (
        served_beside(stack, folder / "on", on, ON) as first,
        served_beside(stack, folder / "off", off, ENGINE) as second,
    ):
        urls, data = {"on": first.proxy_url, "off": second.proxy_url}, {"on": first.data, "off": second.data}
        yield Proxies(urls, data, {"on": on, "off": off}, stack)


@pytest.fixture(scope="module")
def proxies(killable_stack: Stack, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxies]:
    folder = tmp_path_factory.mktemp("continuity")
    with (
        stores.unmade(folder / "on" / "data") as on,
        stores.unmade(folder / "off" / "data") as off,
        both(killable_stack, folder, on, off) as running,
    ):
        yield running


def converse(url: str, run: str, seed: int) -> list[dict[str, Any]] | None:
    """A run of `TURNS` turns; its usage by turn. None where the model did not end a turn, so that no other follows."""
    messages: list[dict[str, Any]] = [LONG_SYSTEM, QUESTION[1]]
    usages = []
    with httpx.Client(base_url=url, timeout=120) as http:
        for turn in range(TURNS):
            body = {"model": "helpdesk", "messages": messages, "tools": TOOLS, "temperature": 1.0, "seed": seed}
            reply = http.post(f"/t/{run}/v1/chat/completions", json=body | {"max_tokens": 200})
            answer = reply.raise_for_status().json()
            [choice] = answer["choices"]
            usages.append(answer["usage"])
            if choice["finish_reason"] == "length":
                return None
            said = {name: value for name, value in choice["message"].items() if value}
            calls = said.get("tool_calls", ())
            results = [{"role": "tool", "tool_call_id": call["id"], "content": "shipped ZX81"} for call in calls]
            asked = {"role": "user", "content": f"Where is my order {4830 + turn}?"}
            messages = [*messages, said, *(results or [asked])]
            if results and turn % 2:  # a question behind the result: the template drops the thinking before it
                messages.append(asked)
    return usages


@pytest.fixture(scope="module")
def runs(proxies: Proxies) -> Runs:
    """By mode: a whole run and its usage by turn."""
    modes = ("on", "off")
    return dict(zip(modes, at_once(partial(_run_of, proxies), modes), strict=True))


def _run_of(proxies: Proxies, mode: str) -> tuple[str, list[dict[str, Any]]]:
    """The first whole run of several that talk at once."""
    for first in range(0, 20, TRIES):
        names = [f"run-{seed}" for seed in range(first, first + TRIES)]
        tries = at_once(lambda name: converse(proxies.urls[mode], name, int(name.removeprefix("run-"))), names)
        if whole := [(name, usages) for name, usages in zip(names, tries, strict=True) if usages is not None]:
            return whole[0]
    raise AssertionError("the model ended no run within 20 tries")


def recorded(proxies: Proxies, mode: str, run: str) -> TrajectoryView:
    """A run as the trainer gets it."""

    async def load() -> TrajectoryView:
        store = await open_store(proxies.data[mode], proxies.recording[mode], migrate=False)
        try:
            return await load_trajectory(store, await find_trajectory(Project(store, "default"), run), with_tokens=True)
        finally:
            await store.close()

    return asyncio.run(load())


def rows_of(run: TrajectoryView) -> list[Row]:
    versions = [call.version_id for call in run.calls if call.version_id is not None]
    basis = RowBasis(run.calls[0].base_fingerprint, versions[:1], max_age=8, max_tokens=4096)
    rows, skipped = trajectory_rows(run, basis)
    assert skipped == []
    return rows


def trainers_logprobs(row: Row) -> np.ndarray[Any, Any]:
    """What transformers says of a row's trained tokens, at their temperature."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor(row.token_ids[None].astype(np.int64))).logits[0, :-1]
    scaled = logits / torch.tensor(np.nan_to_num(row.temperature[1:], nan=1.0))[:, None]
    logprobs = torch.log_softmax(scaled, -1)
    taken = logprobs.gather(1, torch.tensor(row.token_ids[1:].astype(np.int64))[:, None])[:, 0].numpy()
    return np.asarray(taken[row.trained[1:]])


def test_a_run_is_one_row_with_continuity_and_several_without(proxies: Proxies, runs: Runs) -> None:
    rows = {mode: rows_of(recorded(proxies, mode, name)) for mode, (name, _) in runs.items()}
    assert len(rows["on"]) == 1
    assert len(rows["off"]) > 1
    [row] = rows["on"]
    assert len(row.calls) == TURNS
    assert np.abs(trainers_logprobs(row) - row.behaviour[row.trained]).max() <= 1e-4


def test_every_prompt_goes_on_from_what_was_read_and_sampled_and_the_engine_has_it_cached(
    proxies: Proxies, runs: Runs
) -> None:
    name, usages = runs["on"]
    calls = recorded(proxies, "on", name).calls
    before: list[int] = []
    for call, usage in zip(calls, usages, strict=True):
        assert call.prompt_token_ids is not None
        assert list(call.prompt_token_ids[: len(before)]) == before
        if before:
            assert (call.response_meta or {})["token_continuity"]["used"] is True
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            assert cached >= (len(before) - 1) // BLOCK * BLOCK
        assert call.choices[0].token_ids is not None
        before = [*call.prompt_token_ids, *call.choices[0].token_ids]
    assert len(before) > 2 * BLOCK


def test_a_stitched_prompt_is_the_rendered_one_but_for_the_thinking(proxies: Proxies, runs: Runs) -> None:
    name, _ = runs["on"]
    last = recorded(proxies, "on", name).calls[-1]
    assert last.prompt_token_ids is not None
    with proxies.stack.engine() as engine:

        def text(ids: list[int]) -> str:
            asked = {"model": "tiny-qwen3", "tokens": ids}
            return str(engine.post("/detokenize", json=asked).raise_for_status().json()["prompt"])

        asked = {"model": "tiny-qwen3", "messages": list(last.messages), "tools": TOOLS}
        rendered = text(engine.post("/tokenize", json=asked).raise_for_status().json()["tokens"])
        sent = text(list(last.prompt_token_ids))
    assert sent != rendered
    assert _bare(sent) == _bare(rendered)


def test_more_of_a_prompt_is_cached_with_continuity(runs: Runs) -> None:
    share = {}
    for mode, (_, usages) in runs.items():
        cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages[1:])
        share[mode] = cached / sum(usage["prompt_tokens"] for usage in usages[1:])
    assert share["on"] > share["off"]


def _bare(text: str) -> str:
    return "".join(text.replace("<think></think>", "").split())


def test_a_stream_goes_on_the_same_way(proxies: Proxies) -> None:
    with httpx.Client(base_url=proxies.urls["on"], timeout=120) as http:
        body = {
            "model": "helpdesk",
            "messages": QUESTION,
            "tools": TOOLS,
            "max_tokens": 300,
            "temperature": 1.0,
            "seed": 1,
        }
        first = http.post("/t/streamed/v1/chat/completions", json=body).raise_for_status().json()
        said = {name: value for name, value in first["choices"][0]["message"].items() if value}
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": "shipped"} for call in said.get("tool_calls", ())
        ]
        messages = [*QUESTION, said, *results, {"role": "user", "content": "And order 4831?"}]
        streamed = http.post("/t/streamed/v1/chat/completions", json=body | {"messages": messages, "stream": True})
        assert streamed.raise_for_status().text.endswith("data: [DONE]\n\n")
    one, two = recorded(proxies, "on", "streamed").calls
    assert one.prompt_token_ids is not None
    assert one.choices[0].token_ids is not None
    assert two.prompt_token_ids is not None
    before = [*one.prompt_token_ids, *one.choices[0].token_ids]
    assert list(two.prompt_token_ids[: len(before)]) == before
    assert (two.response_meta or {})["token_continuity"]["used"] is True
