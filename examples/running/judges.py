"""The judge of an example: the configured model, else a scripted stand-in.

Owns: where a model may be configured, and starting the stand-in. Refuses: a stand-in's rules (in each example).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from examples.running.campaign import CampaignFailed
from examples.running.programs import free_ports, program
from proxy.errors import ConfigError
from proxy.settings.loader import load_settings


@contextlib.contextmanager
def judging(
    config: Path, data: Path, module: str, name: str, *flags: str, port: int | None = None
) -> Iterator[dict[str, str]]:
    """Run the stand-in `module` until the block ends; yield its variables, or none if a model is named.

    `port`: the stand-in's, default a free one. A judge at another port is another judge to a campaign that goes on.

    Raises:
        CampaignFailed: the settings file cannot be read.
    """
    if model := named(config):
        print(f"Judge: {model}", flush=True)
        yield {}
        return
    port = port or free_ports(1)[0]
    print(f"Judge: a scripted stand-in ({module}). For a real one, set HONE_JUDGE__MODEL.", flush=True)
    with program(["-m", module, "--port", str(port), *flags], port, data):
        yield scripted(name, port)


def named(config: Path) -> str:
    """Return the LiteLLM name of the judge model from HONE_JUDGE__MODEL or the settings file; "" if there is none.

    Raises:
        CampaignFailed: the settings file cannot be read.
    """
    try:
        return load_settings(config, {}).settings.judge.model
    except ConfigError as error:
        raise CampaignFailed(str(error)) from error


def scripted(name: str, port: int) -> dict[str, str]:
    """Yield the settings of a scripted judge on a loopback port."""
    return {
        "HONE_JUDGE__MODEL": f"openai/{name}",
        "HONE_JUDGE__API_BASE": f"http://127.0.0.1:{port}/v1",
        "HONE_JUDGE__API_KEY": "none-needed",
    }
