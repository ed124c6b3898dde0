"""Hone before a real vLLM with a model that can do its job, tools over MCP behind it; Hone before an engine that acts;
and what each client did.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tokenizers import Tokenizer

from examples.helpdesk.scenarios import write_demo
from examples.running.programs import free_ports, program
from tests.agents.acting.engine import MODEL
from tests.agents.clients import Client
from tests.agents.environments import can_make, make
from tests.agents.luck import Luck
from tests.agents.model import BASE, write_trained
from tests.agents.runs import Outcome, run_client
from tests.e2e.conftest import Stack, started, wait_for
from tests.stores import Stores

CONFIG = """
[aliases.helpdesk]

[engine]
base = "{model}"
name = "tiny-qwen3"
max_model_len = 1024
max_lora_rank = 8

[proxy]
mcp_prefix = "none"
strict_tools = "plain" # the Agents SDK and pydantic-ai mark every tool strict

[mcp.helpdesk]
url = "{tools}"
"""

ACTING = """
[aliases.helpdesk]

[engine]
urls = ["{engine}"]
name = "{name}"

[proxy]
port = {port}
strict_tools = "plain"
forced_tools = "plain" # smolagents sends tool_choice required
"""


@pytest.fixture(scope="session")
def tools_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The helpdesk's tools, served over MCP."""
    folder = tmp_path_factory.mktemp("orders")
    [port] = free_ports(1)
    server = ["-m", "examples.helpdesk.tools_server", "--database", str(write_demo(folder).database)]
    with program([*server, "--port", str(port)], port, folder):
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture(scope="session")
def stack(stores: Stores, tmp_path_factory: pytest.TempPathFactory, tools_url: str) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("agents")
    model = write_trained(folder / "model")
    settings = CONFIG.format(model=model, tools=tools_url)
    with stores.unmade(folder / "data") as recording, started(folder, recording, settings) as running:
        yield running


@pytest.fixture(scope="session")
def acting(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """`hone serve` before an engine that plays the game with whatever tools it is offered."""
    folder = tmp_path_factory.mktemp("acting")
    engine_port, port = free_ports(2)
    engine, url = f"http://127.0.0.1:{engine_port}", f"http://127.0.0.1:{port}"
    data, config = folder / "data", folder / "hone.toml"
    serve = ["-m", "proxy.cli", "serve", "--config", str(config), "--data", str(data)]
    acts = ["-m", "tests.agents.acting.engine", "--port", str(engine_port)]
    with stores.unmade(data) as recording, program(acts, engine_port, folder):
        stored = f'[recorder]\nurl = "{recording.url}"\n' if recording.url else ""
        config.write_text(ACTING.format(engine=engine, name=MODEL, port=port) + stored)
        with program(serve, port, folder):
            wait_for("the proxy", lambda: _answers(url))
            yield Stack(data, config, url, engine, "", recording)


def _answers(url: str) -> bool:
    body = {"model": "helpdesk", "messages": [{"role": "user", "content": "hi"}]}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers={"x-hone-purpose": "none"}).is_success


@pytest.fixture(scope="session")
def luck() -> Luck:
    """Counts the runs in which the model erred."""
    tokenizer = Tokenizer.from_file(str(BASE / "tokenizer.json"))
    return Luck(lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)))


@pytest.fixture(scope="session")
def selected(request: pytest.FixtureRequest) -> list[Client]:
    """The clients that run in this session."""
    chosen: dict[Client, None] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and "outcome" in item.fixturenames:
            client = item.callspec.params["client"]
            assert isinstance(client, Client)
            chosen[client] = None
    return [client for client in chosen if can_make(client.environment)]


@pytest.fixture(scope="session")
def environments(selected: list[Client]) -> Iterator[dict[str, Future[Path]]]:
    """Makes the environments of the clients that run, one after another, while the engine starts."""
    with ThreadPoolExecutor(1) as maker:
        yield {name: maker.submit(make, name) for name in dict.fromkeys(client.environment for client in selected)}


@pytest.fixture(scope="session")
def outcome_of(
    request: pytest.FixtureRequest,
    environments: dict[str, Future[Path]],
    luck: Luck,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Client], Outcome]:
    """Returns a function that runs a client the first time it is called with it, and returns the outcome."""
    folder = tmp_path_factory.mktemp("programs")

    @functools.cache
    def before(client_engine: str) -> tuple[Stack, set[str]]:
        stack: Stack = request.getfixturevalue("stack" if client_engine == "vLLM" else "acting")
        return stack, {call["call_id"] for call in stack.export()}

    def run(client: Client) -> Outcome:
        if client.environment not in environments:
            pytest.skip(f"{client.environment} needs a Python that is not on this machine")
        stack, known = before(client.engine)
        environments[client.environment].result()
        return run_client(client, stack, folder, known, luck)

    return functools.cache(run)
