"""`hone up`, `serve` and `engine`: the commands that run until someone stops them.

Owns: their flags, and logging to the terminal. Refuses: the work (`proxy.supervision.up`, `proxy.supervision.serve`,
`proxy.supervision.supervisor`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.commands.context import override_engine, take_only_model
from recorder.base.gc_pause import pause_gc
from recorder.base.terminal import console, echo
from recorder.commands.context import Context

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings
    from proxy.supervision.supervisor import Supervisor


def _log_to_terminal() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    # At INFO the HTTP clients and the MCP SDK print whole URLs, with the tokens that some servers want in them.
    for noisy in ("httpx", "httpx2", "mcp", "alembic", "aiosqlite"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


_FLAGS = (
    click.option("--engine", "engines", multiple=True, metavar="URL", help="A running engine to use. Repeatable."),
    click.option(
        "--model", "models", multiple=True, metavar="NAME", help="A model of the engine to serve. Repeatable."
    ),
    click.option("--host", help="Address of the proxy [127.0.0.1]."),
    click.option("--port", type=int, help="Port of the proxy [8700]; 0 takes a free one."),
    click.option("--workers", type=int, help="Processes of the proxy, all on one port [1]."),
)


def _of_the_proxy(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of a command that runs a proxy. They override the settings before the command is called."""

    @click.pass_obj
    def with_flags(
        context: Context,
        /,
        engines: tuple[str, ...],
        models: tuple[str, ...],
        host: str | None,
        port: int | None,
        workers: int | None,
        **others: object,
    ) -> None:
        override_engine(context, engines, models)
        take_only_model(context)
        context.override("proxy.host", host)
        context.override("proxy.port", port)
        context.override("proxy.workers", workers)
        command(**others)

    made: Callable[..., None] = functools.update_wrapper(with_flags, command)  # its options too
    for flag in reversed(_FLAGS):
        made = flag(made)
    return made


@click.command()
@_of_the_proxy
@click.option("--mcp", "servers", multiple=True, metavar="NAME=URL", help="An MCP server for /mcp. Repeatable.")
@click.option("--mcp-prefix", type=click.Choice(["server", "none"]), help="Names of its tools [server].")
@click.option("--worker", type=int, hidden=True, help="The number of this worker.")
@click.option("--meet", type=click.Path(path_type=Path), hidden=True, help="The folder of the workers' sockets.")
@click.pass_obj
def serve(
    context: Context,
    servers: tuple[str, ...],
    mcp_prefix: str | None,
    worker: int | None,
    meet: Path | None,
) -> None:
    """Run the proxy for an engine: the one that --engine names, else the one of hone.toml."""
    context.override("mcp", dict(map(_server, servers)) or None)
    context.override("proxy.mcp_prefix", mcp_prefix)
    loaded = context.loaded()
    _log_to_terminal()
    identity = (worker, meet) if worker is not None and meet is not None else None
    if identity is None and loaded.settings.proxy.workers > 1:
        from proxy.supervision.workers import WorkerSupervisor  # imports no server: the workers do

        asyncio.run(WorkerSupervisor(loaded.settings, config=loaded.file, flags=context.overrides).run())
        return
    with pause_gc():
        import uvloop

        from proxy.supervision.serve import WorkerIdentity, run

    if identity is not None:
        uvloop.run(run(loaded.settings, WorkerIdentity(*identity), origin=loaded.origin))
    else:
        uvloop.run(run(loaded.settings, origin=loaded.origin))


def _server(text: str) -> tuple[str, dict[str, str]]:
    name, equals, url = text.partition("=")
    if not equals or not name or not url:
        raise click.BadParameter(f"{text!r}: write it as NAME=URL", param_hint="--mcp")
    return name, {"url": url}


@click.command()
@click.option("--print", "only_print", is_flag=True, help="Print the command line instead of running it.")
@click.option("--base", help="The base model: a folder or a Hugging Face id.")
@click.option("--port", type=int, help="Port of the engine [8701].")
@click.pass_obj
def engine(context: Context, only_print: bool, base: str | None, port: int | None) -> None:
    """Run the engine (vLLM) with the flags that Hone needs, and restart it if it dies.

    Its log goes to logs/engine.log in the data folder.
    """
    context.override("engine.base", base)
    context.override("engine.port", port)
    settings = context.settings()
    if only_print:
        _print_engine(settings)
    else:
        _log_to_terminal()
        asyncio.run(_run_engine(settings))


def _print_engine(settings: HoneSettings) -> None:
    from proxy.engine.command import KEY_FILE, engine_command, engine_key

    key = engine_key(settings.engine, settings.data)
    own = settings.engine.api_key is None
    command = engine_command(settings.engine, key=key, served_names=settings.base_models())
    echo(command.shown(settings.data / KEY_FILE if own else None))


async def _run_engine(settings: HoneSettings) -> None:
    from proxy.engine.command import engine_command, engine_key, require_free, write_engine_address
    from proxy.supervision.supervisor import Supervisor
    from proxy.supervision.up import engine_program
    from recorder.processes.signals import call_on_stop

    command = engine_command(
        settings.engine, key=engine_key(settings.engine, settings.data), served_names=settings.base_models()
    )
    require_free(settings.engine.host, settings.engine.port, "engine.port (--port)")
    log = settings.data / "logs" / "engine.log"
    supervisor = Supervisor(engine_program(settings.engine, command, log))
    stop = asyncio.Event()
    echo(f"starting {settings.engine.base} at {command.url}; its log: {log}")
    with call_on_stop(stop.set), write_engine_address(settings.data, settings.engine):
        await _until_stopped(supervisor, stop, f"the engine is up at {command.url}")


async def _until_stopped(supervisor: Supervisor, stop: asyncio.Event, up: str) -> None:
    starting = asyncio.ensure_future(supervisor.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if starting.done():
            starting.result()
            echo(up)
            await stopping
    finally:
        starting.cancel()
        stopping.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)
        await supervisor.stop()


@click.command()
@click.option("--no-learn", is_flag=True, help="Do not start the learner.")
@click.option("--no-judge", is_flag=True, help="Do not start the judge.")
@_of_the_proxy
@click.pass_obj
def up(
    context: Context,
    no_learn: bool,
    no_judge: bool,
) -> None:
    """Run engine, proxy, judge and learner together. Ctrl-C stops them all.

    A process that dies is restarted, except a learner that is killed three times in the same phase. Logs are in logs/
    of the data folder.
    """
    logging.basicConfig(level=logging.ERROR)  # restarts are shown as states
    from proxy.supervision.console import choose_output
    from proxy.supervision.up import HoneUp

    loaded = context.loaded()
    running = HoneUp(
        loaded.settings,
        config=loaded.file,
        flags=context.overrides,
        output=choose_output(console(soft_wrap=True), as_json=context.json),
        with_judge=not no_judge,
        with_learner=not no_learn,
    )
    asyncio.run(running.run())
