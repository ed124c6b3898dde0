"""`hone doctor`: the whole list on a terminal and as JSON, and its exit status."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.proxy.hone_command import hone

pytestmark = [pytest.mark.usefixtures("bare"), pytest.mark.slow]  # the judge checks itself in a process of its own

CODE = "def half(t): return 0.5\n"
TOML = """
[engine]
urls = ["http://127.0.0.1:9"]
[aliases.helpdesk]
[proxy]
port = 0
[[judge.rewards]]
kind = "function"
function = "checks:half"
"""


def test_what_is_wrong_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(CODE)
    (tmp_path / "hone.toml").write_text(TOML)
    code, out, _ = hone("doctor", "--json", "--data", str(tmp_path / "d"))
    assert code == 1
    found = {one["check"]: one for one in json.loads(out)}
    assert found["engine"]["verdict"] == "wrong"
    assert "engine.urls" in found["engine"]["todo"]
    assert found["base"]["verdict"] == "note"
    assert found["reward functions"]["verdict"] == "fine"


def test_it_says_that_all_is_well_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(CODE)
    provider = '[[proxy.models]]\nname = "m"\nmodel = "openai/m"\n'
    (tmp_path / "hone.toml").write_text(
        TOML.replace("[aliases.helpdesk]", "")
        .replace("[engine]", "[recorder]")
        .replace('urls = ["http://127.0.0.1:9"]', "")
        + provider
    )
    code, out, _ = hone("doctor", "--data", str(tmp_path / "d"))
    assert code == 0, out
    assert "wrong" not in out
    assert "checks:half returns 0.5 for a made-up trajectory." in out


@pytest.mark.parametrize(
    ("names", "verdict", "found"),
    [
        (["only"], "fine", "agents ask for only."),
        (["one", "two"], "wrong", "serves one, two: name one with --model"),
        ([], "wrong", "serves no model: name one with --model"),
        (None, "wrong", "does not answer: nothing listens at its address (connection refused)"),
    ],
)
def test_an_engine_by_its_url_gives_its_only_model(
    tmp_path: Path, names: list[str] | None, verdict: str, found: str
) -> None:
    (tmp_path / "checks.py").write_text(CODE)
    (tmp_path / "hone.toml").write_text(TOML[TOML.index("[[judge") :])
    with models_server(names) as url:
        _, out, _ = hone("doctor", "--json", "--offline", "--engine", url, "--data", str(tmp_path / "d"))
    [aliases] = [one for one in json.loads(out) if one["check"] == "aliases"]
    assert aliases["verdict"] == verdict
    assert found in aliases["found"]


@contextlib.contextmanager
def models_server(names: list[str] | None) -> Iterator[str]:
    """The URL of an engine that lists models; None: of none."""
    if names is None:
        yield "http://127.0.0.1:9"
        return
    models = [{"id": name, "root": name, "object": "model"} for name in names]

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"object": "list", "data": models}).encode()
            self.send_response(200 if self.path == "/v1/models" else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


GATED = """
[recorder]
[campaign]
cwd = "."
[aliases.helpdesk]
base_model = "base"
[aliases.helpdesk.gate]
scenarios = "held-out.jsonl"
agent = "checks:run"
success = "checks:solved"
[[proxy.models]]
name = "m"
model = "openai/m"
[[judge.rewards]]
kind = "function"
function = "checks:half"
"""
AGENT = CODE + "async def run(task): return None\ndef solved(run): return True\n"


@pytest.mark.parametrize(
    ("agent", "lines", "verdict", "found"),
    [
        (AGENT, '{"id": "a", "input": 1}', "fine", "checks:run attempts 1 held-out scenarios"),
        (CODE, '{"id": "a", "input": 1}', "wrong", "'checks:run'"),
        (AGENT, '{"id": "a"}', "wrong", 'line 1: "input" is missing'),
    ],
)
def test_the_scenarios_that_versions_are_held_to_are_looked_at(
    tmp_path: Path, agent: str, lines: str, verdict: str, found: str
) -> None:
    (tmp_path / "checks.py").write_text(agent)
    (tmp_path / "held-out.jsonl").write_text(lines)
    (tmp_path / "hone.toml").write_text(GATED)
    _, out, _ = hone("doctor", "--json", "--data", str(tmp_path / "d"))
    [gate] = [one for one in json.loads(out) if one["check"] == "gate of helpdesk"]
    assert gate["verdict"] == verdict
    assert found in gate["found"]
