"""A provider that cannot be called is told as what happened, where, and what to do, in every wire format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.settings.sections import ModelSettings, ProxySettings
from recorder.store.database import Store
from tests.failing_servers import REASONS, failing, require_plain
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import serving

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")]

USER = [{"role": "user", "content": "Hi"}]
FORMATS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/messages": {"messages": USER, "max_tokens": 9},
    "/v1/responses": {"input": "Hi"},
}


@pytest.mark.parametrize(
    ("family", "how"),
    [
        pytest.param(family, how, marks=() if family == "openai" or how == "dead" else pytest.mark.long)
        for family in ("openai", "anthropic", "hosted_vllm", "gemini")
        for how in ("dead", "hangs", "certificate")
    ],
)
async def test_a_provider_that_cannot_be_called_is_told_in_plain_words(store: Store, how: str, family: str) -> None:
    async with failing(how) as url, FakeEngine() as engine:
        # Only a provider that hangs may meet the short limit: on a busy machine a refused connection takes longer.
        patience_s = 1 if how == "hangs" else 60
        model = ModelSettings(
            name="gpt", model=f"{family}/gpt", api_base=url, api_key=SecretStr("sk-provider-key"), timeout_s=patience_s
        )
        async with serving(store, engine, settings=ProxySettings(port=0, pages=False, models=[model])) as proxy:
            for path, more in FORMATS.items():
                answer = await proxy.http.post(path, json={"model": "gpt", **more})
                assert answer.status_code == 502, (path, answer.text)
                message = require_plain(str(answer.json()["error"]["message"]))
                assert message.startswith(f"the provider of 'gpt' ({family}/gpt) ")
                assert REASONS.get(how, "sent nothing for 1 s") in message
                assert "api_base" in message or how == "hangs"
            streamed = await proxy.chat(model="gpt", stream=True)
            silent = ("sent nothing for 1 s", "it did not answer in time")  # the latter within a stream that had begun
            assert any(one in require_plain(streamed.text) for one in ([REASONS[how]] if how in REASONS else silent))
            stored = [json.dumps(call) for call in await proxy.calls()]
            assert len(stored) == 4
            for call in stored:
                require_plain(call)
