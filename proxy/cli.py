"""The `hone` command: its table of subcommands.

Owns: the table, renamed flags, loading each command only when it is called, printing a package's errors as one line.
Refuses: importing more than click: `hone --help` is instant.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

import click

from proxy.commands.context import ensure_context, with_shared_options
from recorder.base.errors import explain
from recorder.base.gc_pause import leave_gc, pause_gc, quick_ends
from recorder.base.terminal import print_click_error, print_error

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# name → (module:attribute, its line in `hone --help`)
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("proxy.commands.init:init", "Write a hone.toml from what is found on this machine."),
    "demo": ("proxy.commands.demo:demo", "Train a small agent on this machine, in minutes."),
    "plan": ("trainer.commands.plan:plan", "Compute whether a model fits on a card, and with which settings."),
    "up": ("proxy.commands.programs:up", "Run engine, proxy, judge and learner together."),
    "serve": ("proxy.commands.programs:serve", "Run the proxy."),
    "engine": ("proxy.commands.programs:engine", "Run the engine (vLLM), or show its command line."),
    "judge": ("judge.commands.judge:judge", "Run the judge on ready groups, or test it with adversarial attempts."),
    "learn": ("trainer.commands.learn:learn", "Run the learner: train on scored groups."),
    "train": ("trainer.commands.train:train", "Run a campaign: train over a list of scenarios."),
    "sft": ("trainer.commands.sft:sft", "Train on demonstrations: recorded trajectories, or a file."),
    "dpo": ("trainer.commands.dpo:dpo", "Train on preferences: a chosen answer against a rejected one."),
    "eval": ("trainer.commands.evaluate:evaluate", "Compare versions on a file of scenarios."),
    "report": ("trainer.commands.report:report", "Show the results of a campaign, here or as one HTML file."),
    "scenarios": (
        "trainer.commands.scenarios:scenarios",
        "Make lists of scenarios, from recorded trajectories or with a model.",
    ),
    "score": ("judge.commands.score:score", "Judge one group and show how, or rescore all groups."),
    "calibrate": ("judge.commands.calibrate:calibrate", "Compare judges with people's labels."),
    "status": ("proxy.commands.status:status", "Show what runs, and which versions are in service."),
    "top": ("proxy.commands.top:top", "Show live whether it learns, whether it is healthy, and what needs you."),
    "versions": ("proxy.commands.versions:versions", "List the versions of an alias."),
    "promote": ("proxy.commands.versions:promote", "Make a version live."),
    "canary": ("proxy.commands.versions:canary", "Give a version a share of new groups."),
    "rollback": ("proxy.commands.versions:rollback", "Remove the canary, or return to the previous live version."),
    "doctor": ("proxy.commands.doctor:doctor", "Check everything that Hone needs, and show what to do."),
    "logs": ("proxy.commands.logs:logs", "Show where the log of each program is."),
    "config": ("proxy.commands.status:config", "Show the settings in force and where each came from."),
    "notify": ("proxy.commands.notify:notify", "List notifications, and send a test."),
    "trajectories": ("recorder.commands.lists:trajectories", "List recorded trajectories."),
    "datasets": ("recorder.commands.datasets:datasets", "Keep named lists of trajectories."),
    "groups": ("recorder.commands.lists:groups", "List groups of trajectories."),
    "show": ("recorder.commands.trajectories:show", "Show one trajectory, call or group."),
    "compare": ("recorder.commands.compare:compare", "Show the attempts of a group side by side."),
    "review": ("recorder.commands.review:review", "Choose the better of two trajectories, blind."),
    "export": ("recorder.commands.trajectories:export", "Print recorded calls or fine-tuning data as JSON lines."),
    "ledger": ("recorder.commands.trajectories:ledger", "Show why things were excluded."),
    "close": ("recorder.commands.close:close", "End a trajectory or a group now, so that it can be judged."),
    "delete": ("recorder.commands.trajectories:delete", "Delete recorded trajectories for good."),
    "keys": ("recorder.commands.store:keys", "Create, list, rotate and revoke keys."),
    "db": ("recorder.commands.store:db", "Maintain the store: upgrade, check, copy, back up."),
    "adapters": ("recorder.commands.adapters:adapters", "Fetch adapters to the host of an engine (adapters.url)."),
    "completion": ("proxy.commands.completion:completion", "Print a shell completion script."),
}

# Renamed flags, by command. The error for an old flag names the new one.
RENAMED_FLAGS: dict[tuple[str, str], str] = {
    ("trajectories", "--said"): "--search",
    ("status", "--watch"): "`hone top`",
    ("train", "--reward-recipe"): "--judge-recipe",
    ("eval", "--reward-recipe"): "--judge-recipe",
    ("scenarios from-traffic", "--runs"): "--trajectories",
}


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now, with the shared options."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        with pause_gc():
            command: click.Command = getattr(importlib.import_module(module), attribute)
        return with_shared_options(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin with `incomplete`, without importing them, and the options."""
        from click.shell_completion import CompletionItem

        items = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's; the error for an unknown name suggests the nearest known one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. An expected error becomes one line and its exit code."""
        shared = ensure_context(ctx)
        try:
            return super().invoke(ctx)
        except click.ClickException as e:
            print_click_error(_with_new_flag(e))
            ctx.exit(e.exit_code)
        except Exception as e:  # the boundary to the terminal: unexpected errors are raised again
            explained = explain(e)
            if shared.debug or explained is None:
                raise
            message, exit_code = explained
            print_error(message)
            ctx.exit(exit_code)


def _with_new_flag(error: click.ClickException) -> click.ClickException:
    """For an unknown flag of `RENAMED_FLAGS`, an error that names the new flag; any other error unchanged."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    command = error.ctx.command_path.partition(" ")[2]
    new = RENAMED_FLAGS.get((command, error.option_name))
    return error if new is None else click.UsageError(f"{error.option_name} is now called {new}.", error.ctx)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hone-proxy", prog_name="hone")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A proxy that agents call instead of their model.

    It serves the current LoRA of an open model, records every token, judges trajectories, trains the next version and
    puts it into service.
    """
    ensure_context(ctx)


def main() -> None:
    """Entry point of the `hone` program."""
    try:
        with quick_ends():
            cli(prog_name="hone")
    finally:
        leave_gc()


if __name__ == "__main__":
    main()
