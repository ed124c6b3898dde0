"""The demo's own arithmetic and folders. The demo as a whole runs in `tests/e2e/test_ring.py`, by its parts."""

from __future__ import annotations

import socket
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from examples.helpdesk import curve
from examples.helpdesk.ending import wilson
from examples.helpdesk.surroundings import surroundings
from examples.running.programs import free_ports, new_run
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


def test_the_first_line_says_where_the_pages_are(tmp_path: Path) -> None:
    said = StringIO()
    with surroundings(tmp_path, console=Console(file=said, width=200)) as (_, found):
        port = found["HONE_PROXY__PORT"]
    assert said.getvalue().splitlines()[0] == f"Pages: http://127.0.0.1:{port}/hone/ (as soon as the proxy runs)"


_STAYS = """
import time
try:
    print("it is up", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("down")
"""


@pytest.mark.slow
def test_what_stays_up_ends_by_ctrl_c_in_its_own_way() -> None:
    program = f"""
import sys
from examples.helpdesk.demo import stay
stay([sys.executable, "-c", {_STAYS!r}], {{}})
print("over")
"""
    with on_terminal("-c", program) as screen:
        screen.wait_for("it is up")
        screen.press(CTRL_C)
        assert screen.end() == 0
    assert "down" in screen.text
    assert "over" in screen.text
    assert "Traceback" not in screen.text
