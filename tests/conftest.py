"""What every test needs: a store of the kind that `--store` names, and property tests without a deadline, as two shared
cores are slow and no test asserts a time; an order in which several workers end at about the same time.

`make test` tries fewer examples of each property (`--hypothesis-profile lean`) than `make long`, and `make check` fewer
still (`quick`). On PostgreSQL `make test` tries the fewest (`statements`): what holds of any store is shown on SQLite.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from recorder.llm import rate_limiter
from scripts.test_times import HEAVY_TESTS, without_case
from tests.certificates import share_certificates
from tests.postgres import Postgres
from tests.stores import PostgresStores, SqliteStores, Stores

settings.register_profile("hone", deadline=None)
settings.register_profile("lean", deadline=None, max_examples=30)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.register_profile("statements", deadline=None, max_examples=10)
settings.load_profile("hone")
share_certificates()
# A shell that starts the tests in its background lets them ignore Ctrl-C, and with them each program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "the database of tests' stores; where it is not sqlite, only tests that have one are run"
    parser.addoption("--store", choices=("sqlite", "postgres"), default="sqlite", help=told)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, and keep what was imported out of its sight.

    Both save each worker seconds: a full collection walks a million objects of imported modules, which stay anyway.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter free what was kept: torch's libraries report each object that is left as a leak."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _mark_heavy(items)
    if "PYTEST_XDIST_WORKER" in os.environ:
        _slow_files_first(items)
    if config.getoption("--store") == "sqlite":
        return
    _only_with_a_store(config, items)
    _repeats_are_long(items)
    for item in items:
        its_own = item.get_closest_marker("sqlite_only")
        if its_own is not None:
            item.add_marker(pytest.mark.skip(reason=f"SQLite's own: {its_own.args[0]}"))


def _mark_heavy(items: list[pytest.Item]) -> None:
    """Mark the tests of `tests/heavy_tests.txt`, which `make check` omits."""
    heavy = set(HEAVY_TESTS.read_text().split())
    for item in items:
        if without_case(item.nodeid) in heavy:
            item.add_marker(pytest.mark.heavy)


def _only_with_a_store(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What has none is the same whatever `--store` says, and run where it says nothing."""
    stored = [item for item in items if "stores" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if "stores" not in getattr(item, "fixturenames", ())])
    items[:] = stored


def _repeats_are_long(items: list[pytest.Item]) -> None:
    """On another database, what matters is that its statements are taken: one case of each test shows it."""
    seen = set[tuple[object, str]]()
    for item in items:
        test = (item.parent, getattr(item, "originalname", item.name))
        repeats = item.get_closest_marker("repeats_statements") is not None
        if item.get_closest_marker("long") is None and (repeats or test in seen):
            item.add_marker(pytest.mark.long)
        else:
            seen.add(test)


def _slow_files_first(items: list[pytest.Item]) -> None:
    """What is left at the end is quick, so that no worker is alone with a long file (`--no-loadscope-reorder`)."""
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server, one for each process of tests that asks."""
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Where tests have new stores from."""
    folder = tmp_path_factory.mktemp("migrated")
    if request.config.getoption("--store") == "sqlite":
        return SqliteStores(folder)
    return PostgresStores(request.getfixturevalue("postgres"), folder)


@pytest.fixture(autouse=True)
def _no_model_is_held() -> Iterator[None]:
    """A model that a test's server told to wait is held for the whole process, and a later server may get its port."""
    yield
    rate_limiter.shared_limiter.cache_clear()
