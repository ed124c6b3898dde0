"""Names that can be guessed, and names that no import shows: modules run by name, scripts run by path.

Names in texts: tests/docs.

The commands of `proxy.cli.COMMANDS` are called in tests/proxy/test_cli.py, the trainer is opened by its name in
tests/trainer/runtime/test_train.py, Alembic finds its steps in tests/recorder/store/test_bootstrap.py.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from proxy.engine import cpu_server
from recorder.processes import user_code_host
from tests.names import FOLDERS, PACKAGES, ROOT, files, is_name, is_unclear_noun, is_unclear_verb, module, parsed

# The modules of ours that are run with -m: arguments that end at once, and the exit status that then shows they ran.
RUN = {
    "proxy.cli": (["--version"], 0),
    "proxy.dashboard.chart_child": (["--help"], 0),
    "proxy.supervision.watchdog": (["5", sys.executable, "-c", "raise SystemExit(7)"], 7),
    "trainer.trackers.child": (["--help"], 0),
}


# At most 30: each says why a colleague would say it aloud.
CLEAR_AS_THEY_ARE = {
    "proxy.errors.Unauthorized": "HTTP's own word for 401",
    "proxy.supervision.draining": "an activity without an object: how a server ends",
    "proxy.versions.routing": "an activity: which version a call gets",
    "proxy.worker_ipc.forwarding": "an activity: a request passed to another worker",
    "recorder.views.lists.paging": "an activity: a list a page at a time",
    "recorder.queue.judging.rescoring": "an activity: scored groups are scored again",
    "recorder.views.status.judging": "a stage of the loop, as pages name it",
    "judge.scoring.rescoring": "the same activity, on the judge's side",
    "trainer.campaign.sampling": "the field's term for making rollouts",
    "trainer.batch.packing": "the field's term for rows in packs",
}
MOST_EXCEPTIONS = 30


def run_by_name(tree: ast.AST) -> Iterator[str]:
    """What follows a "-m" in lists and among arguments."""
    for node in ast.walk(tree):
        words = node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else ()
        for flag, name in pairwise(words):
            if isinstance(flag, ast.Constant) and flag.value == "-m" and isinstance(name, ast.Constant):
                yield str(name.value)


def test_every_module_that_is_run_by_name_is_there() -> None:
    names = {name for path in files(*FOLDERS) if '"-m"' in path.read_text() for name in run_by_name(parsed(path))}
    ours = {name for name in names if name.partition(".")[0] in FOLDERS}
    assert {name for name in ours if module(name.split(".")) is None} == set()
    assert {name for name in ours if name.partition(".")[0] in PACKAGES} == set(RUN)


@pytest.mark.parametrize("name", RUN)
def test_a_module_that_is_run_by_name_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, status = RUN[name]
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, "-P", "-m", name, *arguments]
    # an open standard input: its end would tell the watcher that we are gone
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.wait(60) == status


@pytest.mark.parametrize(
    "script", [Path(user_code_host.__file__), Path(cpu_server.__file__)], ids=lambda path: path.name
)
def test_nothing_beside_a_script_hides_the_standard_library(script: Path) -> None:
    """The folder of a script that is run by path is searched first."""
    assert script.is_file()
    assert {path.stem for path in script.parent.iterdir()} & sys.stdlib_module_names == set()


def test_the_host_of_users_code_runs_by_its_path(tmp_path: Path) -> None:
    """Alone, as in the user's Python. What it does is held in tests/trainer/agents and tests/judge/rewards."""
    command = [sys.executable, "-E", user_code_host.__file__, "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--fd" in done.stdout


def test_the_host_of_users_code_is_python_3_9_and_imports_the_standard_library_alone() -> None:
    tree = ast.parse(Path(user_code_host.__file__).read_text("utf-8"), feature_version=(3, 9))
    nodes = list(ast.walk(tree))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_a_name_is_known_by_its_file_and_its_definition() -> None:
    assert is_name("recorder.capture.lookups")
    assert is_name("proxy.settings.hone.HoneSettings.model_names")
    assert is_name("proxy.settings.sections.ProxySettings.port")
    for stray in ("recorder.no_such_room", "proxy.settings.hone.Nothing", "proxy.cli.main.inner", "proxy.prot"):
        assert not is_name(stray)


def unclear_names() -> Iterator[str]:
    """Classes, modules and public functions of one word that says nothing of what they are, dotted."""
    for path in files(*PACKAGES):
        if "migrations" in path.parts:
            continue
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if is_unclear_noun(path.stem):
            yield dotted
        tree = parsed(path)
        yield from (
            f"{dotted}.{node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and is_unclear_noun(node.name)
        )
        yield from (
            f"{dotted}.{node.name}"
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("_")
            and is_unclear_verb(node.name)
        )


def test_a_name_of_one_word_says_what_it_names() -> None:
    found = set(unclear_names())
    assert found - CLEAR_AS_THEY_ARE.keys() == set(), "name each for what it is: a noun, a verb phrase"
    assert CLEAR_AS_THEY_ARE.keys() - found == set(), "these exceptions are no longer needed"
    assert len(CLEAR_AS_THEY_ARE) <= MOST_EXCEPTIONS


@pytest.mark.parametrize("name", ["Asked", "Told", "_Own", "Whole", "joining", "Kept", "Said", "Scored", "others"])
def test_a_pronoun_or_a_participle_is_no_name(name: str) -> None:
    assert is_unclear_noun(name)


@pytest.mark.parametrize("name", ["ParsedRequest", "Setting", "Sibling", "Seed", "ledger", "rate_limited_log"])
def test_a_noun_is_a_name(name: str) -> None:
    assert not is_unclear_noun(name)


@pytest.mark.parametrize(("name", "unclear"), [("told", True), ("marked", True), ("own", True), ("read", False)])
def test_a_function_is_named_by_a_verb(name: str, unclear: bool) -> None:
    assert is_unclear_verb(name) is unclear
