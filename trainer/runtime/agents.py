"""Start what attempts need beside the store: the user's agent, the success function, and the agent's endpoint.

Owns: both child processes, and an API key for them if the proxy requires keys. Refuses: attempts
(`trainer.agents.attempts`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from recorder.queue.campaigns import CampaignView
from recorder.registry import keys
from recorder.registry.aliases import AliasView
from recorder.store import sql
from recorder.store.database import Project, Store
from trainer.agents import answer, replay
from trainer.agents.attempts import Endpoint
from trainer.agents.user_agent import AgentSpec, UserAgent, is_function
from trainer.campaign_settings import CampaignSettings

_KEY_LIFE_S = 7 * 86400.0


async def start_agents(settings: CampaignSettings, data: Path, stack: AsyncExitStack) -> list[UserAgent]:
    """Start the agent's host, and the success function's if there is one."""
    agents = [UserAgent(spec) for spec in _specs(settings, data / "logs")]
    for agent in agents:
        stack.push_async_callback(agent.stop)
        await agent.start()
    return agents


def _specs(settings: CampaignSettings, logs: Path) -> list[AgentSpec]:
    python, cwd = settings.python or Path(sys.executable), settings.cwd or Path.cwd()
    named = tuple(settings.agent_env)
    own = replay if settings.replay else answer if settings.agent == answer.NAME else None
    if own is not None:  # in Hone's own Python, from where Hone itself is
        specs = [AgentSpec(f"{own.__name__}:run", logs / "agent.log", cwd=Path(str(own.__file__)).parents[2])]
    else:
        assert settings.agent is not None
        specs = [AgentSpec(settings.agent, logs / "agent.log", python, cwd, named)]
    if settings.success is not None and is_function(settings.success):
        specs.append(AgentSpec(settings.success, logs / "success.log", python, cwd, named, "measure"))
    return specs


async def endpoint_of(
    store: Store,
    url: str,
    alias: AliasView,
    campaign: CampaignView,
    scopes: Sequence[keys.Scope],
    stack: AsyncExitStack,
) -> Endpoint:
    """The endpoint of the alias for agents, with an API key of their own if the proxy requires keys."""
    if not await keys.has_keys(Project(store, alias.project_id)):
        return Endpoint(url, "none", alias.name)
    async with store.read() as conn:
        expires_at = await sql.format_wait(conn) + _KEY_LIFE_S
    key, secret = await keys.create_key(
        Project(store, alias.project_id),
        f"campaign {campaign.id}",
        scopes,
        expires_at=expires_at,
        family=campaign.id,  # the same owner of attempts across a campaign's restarts
    )
    stack.push_async_callback(keys.revoke_key, Project(store, alias.project_id), key.id)
    return Endpoint(url, secret, alias.name)
