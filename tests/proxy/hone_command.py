"""The `hone` command run in this process: exit status, output, errors."""

from __future__ import annotations

from click.testing import CliRunner

from proxy.cli import cli


def hone(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, list(arguments), prog_name="hone")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr
