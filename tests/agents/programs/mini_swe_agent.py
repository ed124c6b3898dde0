"""mini-swe-agent, as its command `mini` puts it together, over LiteLLM."""

from __future__ import annotations

import asyncio
import os

os.environ["MSWEA_SILENT_STARTUP"] = "1"
os.environ["MSWEA_COST_TRACKING"] = "ignore_errors"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import yaml
from desk import MAX_TOKENS, TEMPERATURE, Run, main
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel
from workplace import HINT, workplace


async def answer(run: Run) -> str:
    config = yaml.safe_load((builtin_config_dir / "mini.yaml").read_text())
    to = {"api_base": run.base_url, "api_key": run.api_key, "temperature": TEMPERATURE, "max_tokens": MAX_TOKENS}
    settings = config["model"] | {"model_kwargs": config["model"].get("model_kwargs", {}) | to}
    wanted = {name: config["agent"][name] for name in ("system_template", "instance_template")}
    async with workplace(run) as place:
        agent = DefaultAgent(
            LitellmModel(**settings | {"model_name": f"openai/{run.model}"}),
            LocalEnvironment(**config["environment"] | {"cwd": str(place.work)}),
            **wanted,
        )
        done = await asyncio.to_thread(agent.run, f"{run.question} {HINT}")
    return str(done["submission"]).strip()


main(answer)
