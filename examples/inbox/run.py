"""Run the example: a mailbox, its tools, a judge and a baseline around `hone train`, and the summary.

    python -m examples.inbox.run [--seed 7] [--short] [--out FOLDER] [--config hone.toml]

Owns the programs around Hone.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from examples.inbox import frontier, judge
from examples.inbox.scenarios import Files, write
from examples.running.command import Example, ExampleRun, main
from examples.running.judges import judging
from examples.running.programs import free_ports, program

CONFIG: Final = Path(__file__).parent / "hone.toml"
SHORT_STEPS, SHORT_TEST = 6, 100
MEASURED: Final = "exact answers to questions about mails of the test part, which nobody has seen before"


@contextlib.contextmanager
def surroundings(wanted: ExampleRun) -> Iterator[Mapping[str, str]]:
    """Run mails, tools, judge and baseline until the block ends; yield the variables that name them to Hone."""
    files = write(wanted.data / "inbox", wanted.seed, SHORT_TEST if wanted.short else None)
    with contextlib.ExitStack() as programs:
        config = wanted.config or CONFIG
        judged = programs.enter_context(judging(config, wanted.data, judge.__name__, judge.NAME))
        tools_port, rival_port = free_ports(2)
        tools = ["-m", "examples.inbox.tools_server", "--database", str(files.database), "--port", str(tools_port)]
        programs.enter_context(program(tools, tools_port, wanted.data))
        environment = {**named(files, tools_port), **judged}
        if stood_in(config):
            rival = ["-m", "examples.inbox.frontier", "--port", str(rival_port)]
            programs.enter_context(program(rival, rival_port, wanted.data))
            environment |= compared_with(rival_port)
        if wanted.short:
            environment["HONE_CAMPAIGN__STEPS"] = str(SHORT_STEPS)
        yield environment


def stood_in(config: Path) -> bool:
    """Whether a settings file names the scripted stand-in as a baseline."""
    campaign = tomllib.loads(config.read_text(encoding="utf-8")).get("campaign", {})
    return frontier.NAME in campaign.get("baselines", [])


def named(files: Files, tools_port: int) -> dict[str, str]:
    """Return the variables that name the questions and the tools to Hone and the agent."""
    return {
        "INBOX_MCP_URL": f"http://127.0.0.1:{tools_port}/mcp",
        "HONE_CAMPAIGN__SCENARIOS": str(files.train),
        "HONE_CAMPAIGN__VAL_SCENARIOS": str(files.val),
        "HONE_CAMPAIGN__TEST_SCENARIOS": str(files.test),
    }


def compared_with(port: int) -> dict[str, str]:
    """Return the settings of the baseline's stand-in on a loopback port."""
    model = {
        "name": frontier.NAME,
        "model": f"openai/{frontier.NAME}",
        "api_base": f"http://127.0.0.1:{port}/v1",
        "api_key": "none-needed",
    }
    return {"HONE_PROXY__MODELS": json.dumps([model])}


EXAMPLE: Final = Example("inbox", CONFIG.parent, MEASURED, surroundings)

if __name__ == "__main__":
    sys.exit(main(EXAMPLE))
