"""Run a command while Hone serves: start `hone up` with an example's hone.toml, wait for it, and stop it afterwards.

    python -m examples.with_hone examples/langgraph/hone.toml COMMAND …

The command finds `OPENAI_BASE_URL`, as any agent would. Owns: this sequence. The exit status is the command's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from proxy.settings.hone import HoneSettings
from proxy.settings.loader import load_settings

STOP_TIMEOUT_S = 60.0


@contextlib.contextmanager
def serving(config: Path) -> Iterator[str]:
    """Run Hone until the block ends; yield its base URL, without `/v1`.

    Raises:
        RuntimeError: Hone ended, or had no engine in time.
    """
    settings = load_settings(config, {}).settings
    url = f"http://127.0.0.1:{settings.proxy.port}"
    command = [sys.executable, "-m", "proxy.cli", "up", "--no-learn", "--no-judge", "--config", str(config)]
    up = subprocess.Popen(command)
    try:
        _wait(up, url, settings)
        yield url
    finally:
        up.send_signal(signal.SIGINT)
        try:
            up.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            up.kill()
            up.wait()


def _wait(up: subprocess.Popen[bytes], url: str, settings: HoneSettings) -> None:
    """Wait until the proxy has an engine for every alias of hone.toml."""
    deadline = time.monotonic() + settings.engine.start_timeout_s
    while time.monotonic() < deadline and up.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            health = httpx.get(f"{url}/healthz").json()
            if health["engines_up"] and set(settings.declared_aliases()) <= set(health["aliases"]):
                return
        time.sleep(0.2)
    raise RuntimeError(f"Hone did not come up at {url}: its logs are in {settings.data / 'logs'}")


def main() -> int:
    """Run the command, and return its exit status."""
    if len(sys.argv) < 3:
        sys.exit("usage: python -m examples.with_hone CONFIG COMMAND …")
    with serving(Path(sys.argv[1])) as url:
        return subprocess.run(sys.argv[2:], env=os.environ | {"OPENAI_BASE_URL": f"{url}/v1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
