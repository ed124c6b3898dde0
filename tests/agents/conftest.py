"""Hone before a real vLLM with a model that can do its job, tools over MCP behind it, and what each client did."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest

from examples.helpdesk.scenarios import write_demo
from examples.helpdesk.surroundings import free_ports, program
from tests.agents.clients import Client
from tests.agents.model import write_trained
from tests.agents.runs import Outcome, run_client
from tests.e2e.conftest import Stack, started

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


@pytest.fixture(scope="session")
def tools_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The helpdesk's tools, served over MCP."""
    folder = tmp_path_factory.mktemp("orders")
    [port] = free_ports(1)
    server = ["-m", "examples.helpdesk.tools_server", "--database", str(write_demo(folder).database)]
    with program([*server, "--port", str(port)], port, folder):
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, tools_url: str) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("agents")
    model = write_trained(folder / "model")
    with started(folder, CONFIG.format(model=model, tools=tools_url)) as running:
        yield running


@pytest.fixture(scope="session")
def outcome_of(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Client], Outcome]:
    """Runs a client the first time it is asked for, and says what came of it."""
    folder = tmp_path_factory.mktemp("programs")
    known = {call["call_id"] for call in stack.export()}
    return functools.cache(lambda client: run_client(client, stack, folder, known))
