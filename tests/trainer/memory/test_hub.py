"""What `hone plan` fetches of a Hugging Face id: asked of a hub on this machine, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.recorder.models.model_folders import SMALL

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
TOTAL = 123_456_789
FIND = """
import json, sys
from trainer.errors import PlanInvalid
from trainer.memory import bases
bases.FETCH_LIMIT_S = float(sys.argv[1])
try:
    found = bases.find_base("somebody/something")
    print(json.dumps([found.family, found.parameter_bytes.total, found.parameters.total]))
except PlanInvalid as e:
    print(json.dumps(str(e)))
"""


class Hub(ThreadingHTTPServer):
    """A hub with one model. `files`: name to contents; `status`: of each answer; `is_silent`: it never answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.files: dict[str, bytes] = {CONFIG: json.dumps(SMALL).encode()}
        self.asked: list[str] = []
        self.error: tuple[int, str] | None = None
        self.is_silent = False
        self.released = threading.Event()


class HubHandler(BaseHTTPRequestHandler):
    """Answers as the hub's `resolve` addresses do."""

    server: Hub

    def do_HEAD(self) -> None:
        """Answer with the headers of a file."""
        self.send_file(with_body=False)

    def do_GET(self) -> None:
        """Answer with a file."""
        self.send_file(with_body=True)

    def send_file(self, *, with_body: bool) -> None:
        """Send a file, or why there is none."""
        name = self.path.rpartition("/")[2]
        self.server.asked.append(self.path)
        if self.server.is_silent:
            self.server.released.wait()
        body = self.server.files.get(name)
        status, code = self.server.error or (200, "") if body is not None else (404, "EntryNotFound")
        self.send_response(status)
        if code:
            self.send_header("x-error-code", code)
        self.send_header("x-repo-commit", "a" * 40)
        self.send_header("etag", f'"{name}-1"')
        self.send_header("content-length", str(len(body or b"")))
        self.end_headers()
        if with_body and body:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def find(url: str, home: Path, limit_s: float = 30.0) -> Any:
    """What `find_base` says of somebody/something, asked of this hub: family, bytes and parameters, or a refusal."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": url, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", FIND, str(limit_s)], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def url_of(hub: Hub) -> str:
    return f"http://127.0.0.1:{hub.server_address[1]}"


def asked_files(hub: Hub) -> set[str]:
    """The model's files that were asked for. (The hub's library also asks for a list of its own, once a day.)"""
    return {path.rpartition("/")[2] for path in hub.asked if "/something/" in path}


def test_configuration_and_index_are_fetched_and_nothing_else(hub: Hub, tmp_path: Path) -> None:
    hub.files[INDEX] = json.dumps({"metadata": {"total_size": TOTAL}, "weight_map": {"a": "b.safetensors"}}).encode()
    hub.files["b.safetensors"] = b"weights"
    family, size, _ = find(url_of(hub), tmp_path)
    assert (family, size) == ("qwen3", pytest.approx(TOTAL, abs=4))
    assert asked_files(hub) == {CONFIG, INDEX}
    hub.asked.clear()
    find(url_of(hub), tmp_path)
    assert asked_files(hub) == set()  # the second time it is on this machine


def test_a_model_of_one_file_has_no_index(hub: Hub, tmp_path: Path) -> None:
    family, size, parameters = find(url_of(hub), tmp_path)
    assert (family, size) == ("qwen3", 4 * parameters)
    assert asked_files(hub) == {CONFIG, INDEX}


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ((401, "RepoNotFound"), "the hub has no such model"),
        ((403, "GatedRepo"), "the model is gated"),
        ((404, "EntryNotFound"), "the model has no such file"),
    ],
)
def test_a_refusal_of_the_hub_is_one_sentence(error: tuple[int, str], why: str, hub: Hub, tmp_path: Path) -> None:
    hub.error = error
    said = str(find(url_of(hub), tmp_path))
    assert said.startswith(f"config.json of 'somebody/something' cannot be fetched from Hugging Face: {why}")
    assert "Qwen3-8B" in said


def test_a_hub_that_never_answers_is_left_at_the_limit(hub: Hub, tmp_path: Path) -> None:
    hub.is_silent = True
    assert "there was no answer within 1 s" in str(find(url_of(hub), tmp_path, limit_s=0.6))


def test_without_a_network_the_sentence_says_so(hub: Hub, tmp_path: Path) -> None:
    url = url_of(hub)
    hub.server_close()
    assert "there is no connection to the hub" in str(find(url, tmp_path))
