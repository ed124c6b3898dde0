"""The `hone` command: the table of its subcommands.

Owns: the table, importing a command only when it is called, and printing an expected error as one line. Refuses:
importing more than click, so that `hone --help` is instant.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

import click

from proxy.commands.context import ensure_context, with_shared_options
from recorder.base.errors import explain
from recorder.base.terminal import print_click_error, print_error

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# name → (module:attribute, its line in `hone --help`)
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("proxy.commands.init:init", "Write a hone.toml from what is found on this machine."),
    "demo": ("proxy.commands.demo:demo", "Train a small agent on this machine, in minutes."),
    "up": ("proxy.commands.programs:up", "Run engine, proxy, judge and learner together."),
    "serve": ("proxy.commands.programs:serve", "Run the proxy."),
    "engine": ("proxy.commands.programs:engine", "Run the engine (vLLM), or show its command line."),
    "judge": (
        "judge.commands.worker:judge",
        "Run the judge: score groups that are ready. Or test it with adversarial answers.",
    ),
    "learn": ("trainer.commands.learn:learn", "Run the learner: train on what the judge has scored."),
    "train": ("trainer.commands.train:train", "Run a campaign: train over a list of scenarios."),
    "eval": ("trainer.commands.evaluate:evaluate", "Compare versions on a file of scenarios."),
    "report": ("trainer.commands.report:report", "Show the results of a campaign, here or as one HTML file."),
    "scenarios": ("trainer.commands.scenarios:scenarios", "Make lists of scenarios from recorded trajectories."),
    "score": ("judge.commands.score:score", "Score one group and show how, or rescore all."),
    "calibrate": ("judge.commands.calibrate:calibrate", "Compare judges with people's labels."),
    "status": ("proxy.commands.status:status", "Show which programs run, and which versions are in service."),
    "versions": ("proxy.commands.versions:versions", "List the versions of an alias."),
    "promote": ("proxy.commands.versions:promote", "Make a version live."),
    "canary": ("proxy.commands.versions:canary", "Give a version a share of new groups."),
    "rollback": ("proxy.commands.versions:rollback", "Remove the canary, or go back to the previous live version."),
    "doctor": ("proxy.commands.doctor:doctor", "Check all that Hone needs, and say what to do."),
    "config": ("proxy.commands.status:config", "Show the settings in force and where each came from."),
    "trajectories": ("recorder.commands.lists:trajectories", "List recorded trajectories."),
    "groups": ("recorder.commands.lists:groups", "List groups of trajectories."),
    "show": ("recorder.commands.trajectories:show", "Show one trajectory, call or group."),
    "compare": ("recorder.commands.compare:compare", "Show the attempts of a group side by side."),
    "review": (
        "recorder.commands.review:review",
        "Choose the better of two trajectories, blind, where a label helps most.",
    ),
    "export": ("recorder.commands.trajectories:export", "Print recorded calls or fine-tuning data as JSON lines."),
    "ledger": ("recorder.commands.trajectories:ledger", "Show why things were excluded."),
    "close": ("recorder.commands.close:close", "End a trajectory or a group now, so that it can be judged."),
    "delete": ("recorder.commands.trajectories:delete", "Delete recorded trajectories for good."),
    "keys": ("recorder.commands.store:keys", "Create, list and revoke keys."),
    "db": ("recorder.commands.store:db", "Check, upgrade and back up the store."),
    "completion": ("proxy.commands.completion:completion", "Print the shell's completion script for these commands."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command and return it with the shared options; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return with_shared_options(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with `incomplete`, without importing a command."""
        from click.shell_completion import CompletionItem

        matches = [
            CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*matches, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands, without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's; for an unknown name, fail and suggest the nearest known one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. An expected error is printed as one line, and its exit code is used."""
        shared = ensure_context(ctx)
        try:
            return super().invoke(ctx)
        except click.ClickException as e:
            print_click_error(e)
            ctx.exit(e.exit_code)
        except Exception as e:  # the boundary to the terminal: unexpected errors are raised again
            explained = explain(e)
            if shared.debug or explained is None:
                raise
            message, exit_code = explained
            print_error(message)
            ctx.exit(exit_code)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hone-proxy", prog_name="hone")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A proxy that agents talk to instead of their model.

    It serves the current LoRA adapter of an open model, records every token, judges the trajectories, trains the next
    version and puts it into service.
    """
    ensure_context(ctx)


def main() -> None:
    """Entry point of the `hone` program."""
    cli(prog_name="hone")


if __name__ == "__main__":
    main()
