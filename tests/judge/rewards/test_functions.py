"""Reward functions in child processes: results, faults, hangs, and where they run."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from judge.errors import FunctionsDown
from judge.rewards.functions import FunctionPool, RewardResult
from judge.settings import JudgeSettings

pytestmark = pytest.mark.slow

CODE = """
import asyncio, os, stat, sys, threading, time

print("hello from the import")
LOADED = os.getpid()

class Number:
    def __float__(self):
        return 0.25

def pipes():
    "The sockets to Hone, as a hostile or a careless function finds them: an event loop's own do not block."
    for fd in range(3, 1024):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode) and os.get_blocking(fd):
                yield fd
        except OSError:
            pass

def stray(line):
    for fd in pipes():
        os.write(fd, line + b"\\n")
    return 1

def late():
    left = threading.Event()
    def write():
        left.wait()
        stray(b'{"id": 1, "score": 9, "explanation": null, "extra": {}}')
        open("written", "w").close()
    threading.Thread(target=write, daemon=True).start()
    global LATE
    LATE = left
    return 1

def let_go():
    "Lets the late line be written, and waits for it, if there is one in this process."
    if "LATE" in globals():
        LATE.set()
        while not os.path.exists("written"):
            time.sleep(0.01)
    return 0.5

def forked(back):
    child = os.fork()
    if child:
        if not back:
            os.waitpid(child, 0)
        return 0.75
    if not back:
        os._exit(0)
    return 0.25

def score(t):
    print("printed, not replied")
    return {"number": lambda: 1, "float": lambda: -0.5, "true": lambda: True, "like": Number,
        "dict": lambda: {"score": 0.5, "explanation": "half", "calls": 3},
        "none": lambda: None, "text": lambda: "0.5", "nan": lambda: float("nan"), "inf": lambda: -float("inf"),
        "complex": lambda: 1j, "list": lambda: [1], "no score": lambda: {"value": 1},
        "bad extra": lambda: {"score": 1, "x": "y"},
        "leaks": lambda: int(os.environ["SOME_API_KEY"]),
        "raises": lambda: 1 / 0, "exits": lambda: sys.exit(3), "dies": lambda: os._exit(7),
        "hangs": lambda: time.sleep(600), "pid": lambda: LOADED, "noise": lambda: os.write(1, b"not json\\n") and 1,
        "stdin": lambda: len(sys.stdin.read()), "recursion": lambda: score(t),
        "stray": lambda: stray(b"not json"), "answers itself": lambda: stray(b'{"id": 3, "score": 9}'),
        "deep json": lambda: stray(b"[" * 100_000), "no utf-8": lambda: stray(b"\\xff"),
        "late": late, "let go": let_go, "fork": lambda: forked(True), "forked and ended": lambda: forked(False),
        "many": lambda: {"score": 1} | {str(i): i for i in range(101)}, "hundred": lambda: {"score": 1} | {
            str(i): i for i in range(100)}, "long name": lambda: {"score": 1, "x" * 101: 1},
        "odd name": lambda: {"score": 1, "a\\nb": 1}, "half name": lambda: {"score": 1, "\\ud83d": 1},
        "no name": lambda: {"score": 1, "": 1}, "half": lambda: {"score": 1, "explanation": "\\ud83d"},
        "deep": lambda: os._exit((sys.stderr.write("last words\\n"), 1)[1])}[t.answer]()

async def later(t):
    await asyncio.sleep(0)
    return len(t.messages)

def sees(t):
    assert t.scenario["reference"] == "friday" and t.tags == {"a": "b"} and t.tools == [] and t.id == "traj_1"
    return {"score": t.messages[-1]["content"] == "caf\\u00e9 \\U0001f600", "cwd": os.getcwd() == sys.path[0],
        "secret": any("KEY" in k for k in os.environ) or not {"NAMED", "PATH"} <= os.environ.keys(),
        "hone": "judge.settings" in sys.modules}
"""

Make = Callable[..., FunctionPool]


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Make]:
    (tmp_path / "checks.py").write_text(CODE)
    (tmp_path / "settings.py").write_text("def one(t):\n    return 1\n")
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere\n")
    made: list[FunctionPool] = []

    def make(*functions: str, **more: Any) -> FunctionPool:
        rewards = [{"kind": "function", "function": f} for f in functions or ("checks:score",)]
        made.append(FunctionPool(JudgeSettings.model_validate({"rewards": rewards, "folder": tmp_path} | more)))
        return made[-1]

    yield make
    for one in made:
        await one.close()


def trajectory(answer: str, **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"id": "traj_1", "messages": [], "tools": [], "answer": answer, "tags": {}, "scenario": None}
    return base | more


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("number", RewardResult(1.0)),
        ("float", RewardResult(-0.5)),
        ("true", RewardResult(1.0)),
        ("like", RewardResult(0.25)),
        ("noise", RewardResult(1.0)),
        ("stdin", RewardResult(0.0)),
        ("dict", RewardResult(0.5, "half", {"calls": 3.0})),
    ],
)
async def test_a_number_comes_back(pool: Make, answer: str, result: RewardResult) -> None:
    assert await pool().call("checks:score", trajectory(answer)) == result


async def test_what_is_no_finite_number_marks_the_call_alone(pool: Make) -> None:
    functions = pool()
    reasons = {
        "none": "the result is NoneType, not a number",
        "text": "the result is str, not a number",
        "nan": "the result is nan, not a finite number",
        "inf": "the result is -inf, not a finite number",
        "complex": "the result is complex, not a number",
        "list": "the result is list, not a number",
        "no score": "the returned dict has no 'score'",
        "bad extra": "'x' is str, not a number",
        "many": "101 values besides 'score': at most 100",
        "long name": f"'{'x' * 100}' cannot name a value: use 1 to 100 printable characters",
        "odd name": r"'a\nb' cannot name a value",
        "half name": r"'\ud83d' cannot name a value",
        "no name": "'' cannot name a value",
        "raises": r"ZeroDivisionError: division by zero (checks.py:",
        "exits": "SystemExit: 3",
        "recursion": "RecursionError",
        "unknown": "KeyError: 'unknown' (checks.py:",
    }
    pid = (await functions.call("checks:score", trajectory("pid"))).score
    for answer, reason in reasons.items():
        result = await functions.call("checks:score", trajectory(answer))
        assert result.score is None
        assert reason in str(result.explanation)
    assert (await functions.call("checks:score", trajectory("pid"))).score == pid


async def test_a_hundred_named_numbers_come_back(pool: Make) -> None:
    result = await pool().call("checks:score", trajectory("hundred"))
    assert (result.score, result.extra) == (1, {str(i): float(i) for i in range(100)})


@pytest.mark.parametrize("answer", ["stray", "answers itself", "deep json", "no utf-8", "fork"])
async def test_whoever_answers_in_anothers_place_marks_the_call_and_the_next_gets_its_own_answer(
    pool: Make, answer: str
) -> None:
    functions = pool()
    for _ in range(2):  # in a process that is new, and in one that answered calls before
        result = await functions.call("checks:score", trajectory(answer))
        assert result.score is None
        assert ("both processes returned" if answer == "fork" else "wrote into Hone's pipe") in str(result.explanation)
        assert (await functions.call("checks:score", trajectory("float"))).score == -0.5


async def test_a_late_line_costs_its_process_and_the_next_call_gets_its_own_answer(pool: Make) -> None:
    functions = pool()
    pid = (await functions.call("checks:score", trajectory("pid"))).score
    assert (await functions.call("checks:score", trajectory("late"))).score == 1
    assert (await functions.call("checks:score", trajectory("let go"))).score == 0.5
    assert (await functions.call("checks:score", trajectory("pid"))).score not in (None, pid)


async def test_a_process_that_was_forked_and_ended_is_nobodys_business(pool: Make) -> None:
    functions = pool()
    pid = (await functions.call("checks:score", trajectory("pid"))).score
    assert (await functions.call("checks:score", trajectory("forked and ended"))).score == 0.75
    assert (await functions.call("checks:score", trajectory("pid"))).score == pid


async def test_an_import_that_writes_into_the_pipe_is_told(pool: Make, tmp_path: Path) -> None:
    (tmp_path / "writes.py").write_text("import checks\nchecks.stray(b'hello')\n")
    with pytest.raises(FunctionsDown, match="wrote into Hone's pipe: 'hello"):
        await pool("writes:f").call("writes:f", trajectory(""))


async def test_the_code_of_a_module_that_lies_elsewhere_counts_too(
    pool: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site-packages").mkdir()
    module = tmp_path / "site-packages" / "installed.py"
    monkeypatch.setenv("PYTHONPATH", str(module.parent))
    module.write_text("def f(t): return 1\n")
    functions = pool("installed:f", function_env=["PYTHONPATH"])
    first = await functions.code()
    module.write_text("def f(t): return 2\n")
    assert await functions.code() != first
    assert (await functions.call("installed:f", trajectory(""))).score == 2


async def test_async_functions_are_awaited(pool: Make) -> None:
    assert (await pool("checks:later").call("checks:later", trajectory("", messages=[{}, {}]))).score == 2


async def test_a_function_that_hangs_is_killed_and_the_next_call_works(pool: Make) -> None:
    functions = pool(function_timeout_s=0.3)
    pid = (await functions.call("checks:score", trajectory("pid"))).score
    result = await functions.call("checks:score", trajectory("hangs"))
    assert result.score is None
    assert "0.3 s" in str(result.explanation)
    again = (await functions.call("checks:score", trajectory("pid"))).score
    assert again not in (None, pid)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid or 0), 0)


async def test_what_a_function_started_is_killed_with_it(pool: Make, tmp_path: Path) -> None:
    """The child of a killed process becomes nobody's: it must not live on."""
    (tmp_path / "starts.py").write_text(
        "import pathlib, subprocess, sys, time\n"
        "def f(t):\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "    pathlib.Path('pid.new').write_text(str(child.pid))\n"
        "    pathlib.Path('pid.new').rename('pid')\n"
        "    time.sleep(600)\n"
    )
    hanging = asyncio.create_task(pool("starts:f").call("starts:f", trajectory("")))
    async with asyncio.timeout(60):
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.02)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(int((tmp_path / "pid").read_text()))
            while started.status() != psutil.STATUS_ZOMBIE:
                await asyncio.sleep(0.02)


async def test_a_function_that_kills_its_process_marks_the_call_alone(pool: Make) -> None:
    functions = pool()
    assert "status 7" in str((await functions.call("checks:score", trajectory("dies"))).explanation)
    assert "last words" in str((await functions.call("checks:score", trajectory("deep"))).explanation)
    assert (await functions.call("checks:score", trajectory("number"))).score == 1


async def test_a_process_killed_between_two_calls_is_started_again(pool: Make) -> None:
    functions = pool()
    pid = int((await functions.call("checks:score", trajectory("pid"))).score or 0)
    os.kill(pid, signal.SIGKILL)
    while functions._all[0]._host.is_running:
        await asyncio.sleep(0.01)
    assert (await functions.call("checks:score", trajectory("number"))).score == 1


async def test_a_function_sees_the_trajectory_and_runs_in_the_users_folder_without_hone(
    pool: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HONE_JUDGE__API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "NAMED"):
        monkeypatch.setenv(name, "secret")
    seen = trajectory(
        "",
        messages=[{"role": "assistant", "content": "café \U0001f600"}],
        scenario={"reference": "friday"},
        tags={"a": "b"},
    )
    result = await pool("checks:sees", function_env=["NAMED"]).call("checks:sees", seen)
    assert result == RewardResult(1.0, None, {"cwd": 1.0, "secret": 0.0, "hone": 0.0})


async def test_a_users_module_named_like_one_of_ours_is_the_users(pool: Make) -> None:
    assert (await pool("settings:one").call("settings:one", trajectory(""))).score == 1


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("broken:score", "No module named 'no_such_module_anywhere'"),
        ("absent:score", "No module named 'absent'"),
        ("checks:absent", "no attribute 'absent'"),
        ("checks:LOADED", "checks:LOADED is a int, not a function"),
    ],
)
async def test_functions_that_cannot_be_imported_are_no_fault_of_a_trajectory(
    pool: Make, function: str, why: str
) -> None:
    with pytest.raises(FunctionsDown, match=why):
        await pool(function).call(function, trajectory("number"))


async def test_a_python_or_folder_that_is_not_there_is_named(pool: Make, tmp_path: Path) -> None:
    with pytest.raises(FunctionsDown, match=r"no-python.*judge\.python"):
        await pool(python=tmp_path / "no-python").call("checks:score", trajectory("number"))
    with pytest.raises(FunctionsDown, match="no-folder"):
        await pool(folder=tmp_path / "no-folder").call("checks:score", trajectory("number"))


async def test_an_import_that_hangs_is_cut(pool: Make, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(600)\n")
    with pytest.raises(FunctionsDown, match=r"0\.3 s \(judge\.function_start_s\)"):
        await pool("slow:score", function_start_s=0.3).call("slow:score", trajectory("number"))


async def test_a_cancelled_call_leaves_no_late_reply_behind(pool: Make) -> None:
    functions = pool()
    await functions.call("checks:score", trajectory("number"))
    hanging = asyncio.create_task(functions.call("checks:score", trajectory("hangs")))
    await asyncio.sleep(0)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert (await functions.call("checks:score", trajectory("float"))).score == -0.5


async def test_several_processes_work_side_by_side(pool: Make) -> None:
    functions = pool(function_processes=2)
    pids = await asyncio.gather(*(functions.call("checks:score", trajectory("pid")) for _ in range(6)))
    assert len({pid.score for pid in pids}) == 2


async def test_keys_stand_in_no_reason(pool: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOME_API_KEY", "key-of-the-environment")
    result = await pool(function_env=["SOME_API_KEY"]).call("checks:score", trajectory("leaks"))
    assert result.explanation is not None
    assert result.explanation.startswith("ValueError: invalid literal for int() with base 10: '***'")
    (tmp_path / "leaky.py").write_text("import os\nint(os.environ['SOME_API_KEY'])\n")
    with pytest.raises(FunctionsDown, match=r"'\*\*\*'") as caught:
        await pool("leaky:f", function_env=["SOME_API_KEY"]).call("leaky:f", trajectory(""))
    assert "key-of-the-environment" not in str(caught.value)


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_pool_that_is_closed_while_a_child_starts_leaves_no_child(
    pool: Make, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    started: list[asyncio.subprocess.Process] = []
    begun, go_on = asyncio.Event(), asyncio.Event()
    really = asyncio.create_subprocess_exec

    async def slowly(*args: Any, **kwargs: Any) -> asyncio.subprocess.Process:
        started.append(await really(*args, **kwargs))
        begun.set()
        await go_on.wait()
        return started[0]

    monkeypatch.setattr("recorder.processes.child_host.asyncio.create_subprocess_exec", slowly)
    functions = pool()
    calling = asyncio.ensure_future(functions.call("checks:score", trajectory("number")))
    await begun.wait()
    if cancelled:
        calling.cancel()
        await asyncio.wait({calling})
    closing = asyncio.ensure_future(functions.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    await asyncio.wait({calling})
    assert calling.cancelled() == cancelled
    assert calling.cancelled() or isinstance(calling.exception(), FunctionsDown)
    assert started[0].returncode is not None


async def test_an_edited_function_is_loaded_anew_and_its_code_has_another_hash(pool: Make, tmp_path: Path) -> None:
    (tmp_path / "edited.py").write_text("from helper import ONE\ndef f(t): return ONE\n")
    (tmp_path / "helper.py").write_text("ONE = 1\n")
    functions = pool("edited:f", function_processes=2)
    first = await functions.code()
    assert (await functions.call("edited:f", trajectory(""))).score == 1
    assert await functions.code() == first
    (tmp_path / "helper.py").write_text("ONE = 2\n")  # of equal size, within the same second
    second = await functions.code()
    assert second != first
    both = await asyncio.gather(*(functions.call("edited:f", trajectory("")) for _ in range(4)))
    assert [one.score for one in both] == [2, 2, 2, 2]
    (tmp_path / "helper.py").write_text("ONE = 1\n")
    assert await functions.code() == first


async def test_an_edit_that_breaks_the_import_is_told_and_mended_by_the_next(pool: Make, tmp_path: Path) -> None:
    (tmp_path / "edited.py").write_text("def f(t): return 1\n")
    functions = pool("edited:f")
    first = await functions.code()
    (tmp_path / "edited.py").write_text("def f(t) return 1\n")
    with pytest.raises(FunctionsDown, match="SyntaxError"):
        await functions.code()
    (tmp_path / "edited.py").write_text("def f(t): return 1\n")
    assert await functions.code() == first


async def test_two_processes_give_the_same_code_one_hash(pool: Make) -> None:
    assert await pool("checks:score").code() == await pool("checks:score").code()
    assert await pool("checks:score").code() != await pool("settings:one").code()
