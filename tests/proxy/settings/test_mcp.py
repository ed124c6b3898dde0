"""`[mcp.<name>]`: a server is a URL or a command, under a name that its tools can bear."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.settings.loader import load_settings
from tests.proxy.settings.written import write

pytestmark = pytest.mark.usefixtures("bare")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[mcp.a]\n", "give either `url` or `command`"),
        ("[mcp.a]\nurl = 'http://x/mcp'\ncommand = 'x'\n", "give either `url` or `command`"),
        ("[mcp.a]\nurl = 'x'\n", "is not a URL"),
        ("[mcp.a]\nurl = 'https://me:sesame@x/mcp'\n", "as `token`, or .* as `headers"),
        ("[mcp.a]\nurl = 'https://sesame@x/mcp'\n", "as `token`, or .* as `headers"),
        ("[mcp.a]\nurl = 'ftp://me:sesame@x/mcp'\n", "is not a URL"),
        ("[mcp.a]\nurl = 'http://x/mcp'\nargs = ['x']\n", "are for a server with a `command`"),
        ("[mcp.a]\nurl = 'http://x/mcp'\nper = 'shared'\n", "are for a server with a `command`"),
        ("[mcp.a]\ncommand = 'x'\nmax_sessions = 0\n", "greater than 0"),
        ("[mcp.a]\ncommand = 'x'\ntoken = 'x'\n", "are for a server with a `url`"),
        ("[mcp.a__b]\nurl = 'http://x/mcp'\n", "is not a name for an MCP server"),
        ("[mcp.a]\nurl = 'http://x/mcp'\ntimeout = 3\n", "mcp.a.timeout_s"),
        (
            "[proxy]\nmcp_prefix = 'none'\n[mcp.a]\nurl = 'http://x'\n[mcp.b]\nurl = 'http://x'\n",
            "only a single server",
        ),
    ],
)
def test_an_mcp_server_that_cannot_be_is_refused(tmp_path: Path, text: str, why: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError, match=why) as refused:
        load_settings(None, {})
    assert "sesame" not in str(refused.value)
