"""The garbage collector is off inside the block alone, and as before after it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from recorder.base.gc_pause import pause_gc, rest_gc
from tests.names import ROOT


@pytest.fixture(autouse=True)
def _collector_stays_on() -> Iterator[None]:
    yield
    gc.enable()


def test_the_collector_pauses_inside_and_runs_after_an_error() -> None:
    inside: list[bool] = []

    def import_what_is_missing() -> None:
        with pause_gc():
            inside.append(gc.isenabled())
            raise ImportError

    with pytest.raises(ImportError):
        import_what_is_missing()
    assert (inside, gc.isenabled()) == ([False], True)


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with pause_gc(), pause_gc():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_collector_at_rest_collects_seldom_and_as_before_after_an_error() -> None:
    before, inside = gc.get_threshold(), []

    def import_what_is_missing() -> None:
        with rest_gc():
            inside.append(gc.get_threshold())
            raise ImportError

    with pytest.raises(ImportError):
        import_what_is_missing()
    assert inside[0][0] > 10 * before[0]
    assert (gc.isenabled(), gc.get_threshold()) == (True, before)


def test_at_the_end_of_a_program_the_collector_walks_nothing_and_atexit_runs() -> None:
    """A cycle that the last collection would free tells whether there was one."""
    program = (
        "import atexit, gc\n"
        "from recorder.base.gc_pause import leave_gc\n"
        "class Cycle:\n"
        "    def __init__(self): self.me = self\n"
        "    def __del__(self): print('walked')\n"
        "atexit.register(print, 'atexit')\n"
        "def main():\n"
        "    Cycle()\n"
        "    {}\n"
        "main()\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program.format(end)], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout.split()
        for end in ("gc.get_count()", "leave_gc()")
    ]
    assert said == [["atexit", "walked"], ["atexit"]]


def test_a_program_with_torch_ends_as_usual() -> None:
    """Its libraries print each object that nobody freed: a command that fails has one line, not forty."""
    program = "import torch\nfrom recorder.base.gc_pause import leave_gc\nimport triton\nleave_gc()\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(("end", "last"), [("QuickEnd", []), ("SystemExit", ["torn down"])])
def test_a_quick_end_tears_nothing_down_and_loses_nothing(end: str, last: list[str]) -> None:
    """Threads end, `atexit` and logging are heard, what was printed is written, and the status stays."""
    program = (
        "import atexit, logging.handlers, sys, threading, time\n"
        "from recorder.base.gc_pause import QuickEnd, quick_ends\n"
        "class Kept:\n"
        "    def __del__(self): print('torn down')\n"
        "kept = Kept()\n"
        "late = logging.handlers.MemoryHandler(9, target=logging.StreamHandler(sys.stdout))\n"
        "logging.basicConfig(handlers=[late], level='INFO')\n"
        "def work():\n"
        "    time.sleep(0.2)\n"
        "    print('thread')\n"
        "with quick_ends():\n"
        "    threading.Thread(target=work).start()\n"
        "    atexit.register(print, 'atexit')\n"
        "    logging.info('logged')\n"
        "    sys.stderr.write('error')\n"
        f"    raise {end}(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (3, "error")
    assert done.stdout.split("\n")[:-1] == ["thread", "atexit", "logged", *last]


def test_without_a_reader_a_quick_end_says_so_as_any_other() -> None:
    program = (
        "import os\n"
        "from recorder.base.gc_pause import QuickEnd, quick_ends\n"
        "with quick_ends():\n"
        "    print('answer')\n"
        "    raise QuickEnd(0)\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )
    os.close(writer)
    assert done.returncode == 120  # Python's own status of what could not be flushed
    assert "BrokenPipeError" in done.stderr
