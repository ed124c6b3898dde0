"""The demo's own arithmetic and folders. The demo as a whole runs in `tests/e2e/test_ring.py`, by its parts."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from examples.helpdesk import curve
from examples.helpdesk.ending import wilson
from examples.helpdesk.surroundings import surroundings
from examples.running.programs import ROOT, free_ports, new_run
from tests.proxy.terminal import CTRL_C, on_terminal


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_share_and_stays_within_0_and_1(counted: tuple[int, int]) -> None:
    right, attempts = counted
    low, high = wilson(right / attempts, attempts)
    assert 0 <= low <= right / attempts <= high <= 1
    assert low < high


def test_the_interval_is_wilsons() -> None:
    # Newcombe 1998, table I, method 3: 81 of 263
    low, high = wilson(81 / 263, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)


def test_every_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    for number in ("1", "2", "3"):
        run = new_run(tmp_path)
        assert run == tmp_path / number


def test_the_same_numbers_give_the_same_picture(tmp_path: Path) -> None:
    summary = {
        "success_by_step": [{"step": 1, "success": 0.25}, {"step": 2, "success": 1.0}],
        "before": {"success": 0.3, "low": 0.24, "high": 0.37, "attempts": 200},
        "after": {"success": 0.97, "low": 0.94, "high": 0.99, "attempts": 200},
        "seconds": 100.0,
    }
    for name in ("a.svg", "b.svg"):
        curve.save(curve.draw(summary), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    summary["after"] = {"success": 0.5, "low": 0.43, "high": 0.57, "attempts": 200}
    curve.save(curve.draw(summary), tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_bytes() != (tmp_path / "a.svg").read_bytes()


def test_free_ports_are_free_and_different() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_free_ports_are_given_once_among_processes() -> None:
    code = (
        "from examples.running import programs\n"
        "programs._PORTS = range(31_000, 31_200)\n"
        "print(*programs.free_ports(90), flush=True)\n"
        "__import__('sys').stdin.read()"  # this process's ports stay its own until it ends
    )
    found: list[int] = []
    with contextlib.ExitStack() as programs:
        for _ in range(2):
            asked = [sys.executable, "-c", code]
            one = subprocess.Popen(asked, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            programs.enter_context(one)
            assert one.stdout is not None
            found += [int(port) for port in one.stdout.readline().split()]
    assert len(set(found)) == 180


@pytest.mark.skipif(sys.platform != "linux", reason="the range is read where Linux says it")
def test_free_ports_are_none_that_the_system_hands_out() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(free_ports(5)) < first


def test_the_first_line_says_where_the_pages_are(tmp_path: Path) -> None:
    said = StringIO()
    with surroundings(tmp_path, console=Console(file=said, width=200)) as (_, found):
        port = found["HONE_PROXY__PORT"]
    assert said.getvalue().splitlines()[0] == f"Pages: http://127.0.0.1:{port}/hone/ (as soon as the proxy runs)"


# In place of `hone`: what each program does, and that none of them is started twice.
_HONE = """
import json, os, sys, time
from pathlib import Path
name, data = sys.argv[1], Path(sys.argv[sys.argv.index("--data") + 1])
with (data / "started").open("a") as started:
    started.write(f"{name}\\n")
if name == "train":
    sys.exit(0)
if name == "up":
    print(json.dumps({"event": "starting", "text": "engine for 1 s (loading the weights)"}), flush=True)
    time.sleep(1)
    print(json.dumps({"event": "ready", "text": "Ready"}), flush=True)
time.sleep(600)
"""


@pytest.fixture
def hone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a `proxy.cli` that starts nothing, before the real one on the path."""
    package = tmp_path / "instead" / "proxy"
    (package / "supervision").mkdir(parents=True)
    for folder in (package, package / "supervision"):
        (folder / "__init__.py").touch()
    (package / "cli.py").write_text(_HONE)
    (package / "supervision" / "watchdog.py").write_bytes((ROOT / "proxy" / "supervision" / "watchdog.py").read_bytes())
    return package.parent


def _demo(hone: Path, data: Path, *, keep: bool) -> str:
    """A program that runs the demo with `hone` in place of Hone and without its servers."""
    return f"""
import contextlib, sys
from pathlib import Path
from rich.console import Console
import examples.helpdesk.demo as demo, examples.running.programs as programs
programs.ROOT = Path({str(hone)!r})
demo.conclude = lambda *_: print("concluded")
@contextlib.contextmanager
def surroundings(*_):
    yield None, {{"HONE_PROXY__PORT": "1", "PYTHONPATH": {str(hone)!r}}}
demo.surroundings = surroundings
print("status", demo.run(Path({str(data)!r}), 0, Console(highlight=False), keep={keep}))
"""


@pytest.mark.slow
def test_what_ran_for_the_demo_is_kept_until_ctrl_c_and_started_once(hone: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with on_terminal("-c", _demo(hone, data, keep=True)) as screen:
        screen.wait_for("loading the weights")
        screen.wait_for("http://127.0.0.1:1/hone/")
        screen.press(CTRL_C)
        assert screen.end() == 0
    assert "concluded" in screen.text
    assert "status 0" in screen.text
    assert "Traceback" not in screen.text
    assert (data / "started").read_text().split() in (["up", "train"], ["up", "train", "learn"])
    assert "starting  engine for 1 s (loading the weights)" in (data / "logs" / "up.log").read_text()


@pytest.mark.slow
def test_without_a_terminal_the_wait_has_lines_without_control_characters(hone: Path, tmp_path: Path) -> None:
    program = (
        f"import examples.running.programs as of\nof.LINE_EVERY_S = 0.3\n{_demo(hone, tmp_path / 'data', keep=False)}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "Starting Hone: 0 s" in done.stdout
    assert ", loading the weights" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout


@pytest.mark.slow
def test_what_does_not_become_ready_is_told_with_its_log(hone: Path, tmp_path: Path) -> None:
    (hone / "proxy" / "cli.py").write_text("import sys\nsys.exit('there is no model')")
    program = _demo(hone, tmp_path / "data", keep=False)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode != 0
    assert "`hone up` did not become ready. The end of" in done.stderr
    assert "there is no model" in done.stderr
