"""The examples with an agent of their own: the commands of their READMEs, from nothing to recorded runs."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from examples.running.programs import free_ports
from recorder.views.lists.short_ids import shorten_id

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]

ROOT = Path(__file__).parent.parent.parent
QUESTIONS = 8


def make(example: str, target: str, data: Path, ports: list[int]) -> str:
    """What `make -C examples/<example> <target>` prints, with a data folder and ports of its own."""
    mine = {"HONE_DATA": str(data), "HONE_PROXY__PORT": str(ports[0]), "HONE_ENGINE__PORT": str(ports[1])}
    command = ["make", "--no-print-directory", "-C", str(ROOT / "examples" / example), target]
    done = subprocess.run(
        command, env=os.environ | mine, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def exported(data: Path, form: str) -> list[dict[str, Any]]:
    command = [str(ROOT / ".venv" / "bin" / "hone"), "export", "--format", form, "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_recorded(example: str, data: Path) -> list[dict[str, Any]]:
    """Run an example's commands, and return the recorded calls, which are those of its questions."""
    ports = free_ports(2)
    said = make(example, "run", data, ports)
    assert said.count("Where is my order") == QUESTIONS

    calls = exported(data, "raw")
    runs = {call["trajectory_id"] for call in calls}
    listed = make(example, "show", data, ports)
    assert len(runs) == QUESTIONS
    assert all(f"{shorten_id(run)} " in listed for run in runs)
    for call in calls:
        [choice] = call["choices"]
        assert len(choice["token_ids"]) == len(choice["logprobs"]) > 0
    return calls


@pytest.mark.long
def test_the_langgraph_examples_commands_lead_to_recorded_runs(tmp_path: Path) -> None:
    assert_recorded("langgraph", tmp_path / "data")


def test_the_mcp_examples_commands_lead_to_recorded_runs_with_model_and_tools_in_one_trajectory(
    tmp_path: Path,
) -> None:
    calls = assert_recorded("mcp-agent", tmp_path / "data")
    tools = exported(tmp_path / "data", "tools")
    # a last turn may ask for a tool too, which the agent calls then
    asked = [
        (call["trajectory_id"], call["call_id"], each["function"]["name"])
        for call in calls
        for each in call["response"]["choices"][0]["message"].get("tool_calls") or ()
        if _is_object(each["function"]["arguments"])
    ]
    assert tools
    assert Counter((tool["trajectory_id"], tool["call_id"], tool["tool"]) for tool in tools) == Counter(asked)


def _is_object(arguments: str) -> bool:
    """Whether a call's arguments can be sent: those of a model that rambles cannot always."""
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False
