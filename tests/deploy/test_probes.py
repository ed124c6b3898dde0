"""What asks PostgreSQL's container whether it is well is right at every moment of its start, by PostgreSQL itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from examples.running.programs import free_ports
from tests.deploy.reading import pods, services
from tests.postgres import Postgres, program

pytestmark = pytest.mark.slow


def questions() -> Iterator[tuple[str, list[str]]]:
    """Each command that asks, and where it stands."""
    word, *argv = services()["postgres"]["healthcheck"]["test"]
    assert word == "CMD"
    yield "compose", argv
    [container] = pods("one-gpu")["postgres"]["containers"]
    for probe in ("startupProbe", "readinessProbe"):
        yield probe, container[probe]["exec"]["command"]


@contextmanager
def server(listens: str) -> Iterator[dict[str, str]]:
    """A server that listens on its socket and there; the variables by which a client finds both."""
    port = str(free_ports(1)[0])
    started = Postgres(listen_addresses=listens, port=port)
    try:
        yield os.environ | {"PGHOST": str(started.folder), "PGPORT": port}
    finally:
        started.stop()


def answers(argv: list[str], env: dict[str, str]) -> bool:
    return subprocess.run([program(argv[0]), *argv[1:]], env=env, capture_output=True).returncode == 0


def test_a_server_that_only_makes_its_database_is_not_taken_for_the_one_that_serves() -> None:
    """The image starts such a one on a new volume, on the socket alone. Who comes then is cut off when it ends."""
    with server("") as env:
        assert answers(["pg_isready"], env)
        for where, argv in questions():
            assert not answers(argv, env), where
    with server("127.0.0.1") as env:
        for where, argv in questions():
            assert answers(argv, env), where
