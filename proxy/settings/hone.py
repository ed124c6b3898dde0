"""Every package's section of hone.toml as one model, and the checks across sections.

Owns: composing the sections. Refuses: reading them (`proxy.settings.loader`), and the meaning of a setting (its
section's docstring). As all settings models, every package may import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from judge.settings import JudgeSettings
from proxy.settings.mcp import McpServerSettings, check_names
from proxy.settings.notify import NotifySettings
from proxy.settings.sections import AliasSettings, EngineSettings, ProxySettings, ShadowSettings, base_name
from recorder.settings import AdapterSettings, LearnSettings, RecorderSettings
from trainer.campaign_settings import CampaignSettings
from trainer.settings import TrainerSettings
from trainer.track_settings import TrackSettings

ENV_PREFIX = "HONE_"  # `proxy.port` is HONE_PROXY__PORT
NESTED = "__"


class HoneSettings(BaseSettings):
    """All settings. Build it with `load_settings`."""

    model_config = SettingsConfigDict(extra="forbid", env_prefix=ENV_PREFIX, env_nested_delimiter=NESTED)

    project: str = "default"
    """The project of the aliases, keys and trajectories that this program works with."""
    data: Path = Path(".hone")
    """The data folder: store, adapters, logs. Default: `.hone` next to hone.toml, else in the working directory."""
    proxy: ProxySettings = ProxySettings()
    """The HTTP server."""
    engine: EngineSettings = EngineSettings()
    """The model server behind the proxy."""
    recorder: RecorderSettings = RecorderSettings()
    """The store, and when trajectories and groups end."""
    learn: LearnSettings = LearnSettings()
    """How much Hone learns on its own, and when."""
    adapters: AdapterSettings = AdapterSettings()
    """Where adapters are shared without a common folder."""
    judge: JudgeSettings = JudgeSettings()
    """How groups are judged and scored."""
    trainer: TrainerSettings = TrainerSettings()
    """How scored groups become versions."""
    campaign: CampaignSettings = CampaignSettings()
    """Training over scenarios that Hone runs itself (`hone train`)."""
    track: TrackSettings = TrackSettings()
    """Experiment trackers that receive training figures."""
    notify: NotifySettings = NotifySettings()
    """Where Hone reports what an operator should know."""
    aliases: dict[str, AliasSettings] = {}
    """The model names that agents ask for. Default: one, named as the engine names the base."""

    mcp: dict[str, McpServerSettings] = {}
    """The MCP servers that offer their tools to agents at `/mcp`."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only what `load_settings` merged: it knows the order of the sources and the origin of each value."""
        return (init_settings,)

    def declared_aliases(self) -> dict[str, AliasSettings]:
        """The aliases of hone.toml or `--model`; without any, one named like the engine's base.

        An alias without a `baseline` has that of `[trainer]`.
        """
        base = base_name(self.engine)
        declared = {base: AliasSettings()} if not self.aliases and base is not None else self.aliases
        return {name: self._filled_in(alias) for name, alias in declared.items()}

    def _filled_in(self, alias: AliasSettings) -> AliasSettings:
        return alias.model_copy(update={"baseline": alias.baseline or self.trainer.baseline})

    def base_models(self) -> list[str]:
        """The names, besides its own, under which aliases want the engine to serve the base."""
        return sorted({a.base_model for a in self.aliases.values() if a.base_model})

    @model_validator(mode="after")
    def _fit(self) -> HoneSettings:
        if self.trainer.rank > self.engine.max_lora_rank:
            raise ValueError(
                f"trainer.rank {self.trainer.rank} is higher than engine.max_lora_rank {self.engine.max_lora_rank}: "
                "the engine would refuse every version"
            )
        self._place_on_gpus()
        models = {model.name for model in self.proxy.models}
        if both := sorted(models & self.declared_aliases().keys()):
            raise ValueError(f"{both[0]!r} names an alias and a model of [[proxy.models]]: rename one of them")
        for name, alias in self.aliases.items():
            if alias.fallback is not None and alias.fallback not in models:
                there = ", ".join(sorted(models)) or "none"
                raise ValueError(
                    f"aliases.{name}.fallback is {alias.fallback!r}, not a model of [[proxy.models]]: {there}"
                )
        if self.proxy.mcp_prefix == "none" and len(self.mcp) > 1:
            raise ValueError(
                f"proxy.mcp_prefix is 'none', and there are {len(self.mcp)} MCP servers ({', '.join(self.mcp)}): only "
                "a single server can keep its own names"
            )
        check_names(self.mcp)
        self._know_recipes()
        return self

    def _place_on_gpus(self) -> None:
        """Raise ValueError where engine and trainer have a GPU in common and may not, or share none and should."""
        engine, trainer = self.engine.gpus, self.trainer.gpus
        if self.trainer.processes > 1 and self.engine.share != "split":
            raise ValueError(
                f'trainer.processes is {self.trainer.processes}, and engine.share is "{self.engine.share}": an engine '
                'pauses for one process alone. Set trainer.processes = 1, or engine.share = "split"'
            )
        if not engine or not trainer:
            return
        common = sorted({*engine} & {*trainer})
        if common and self.engine.share == "split":
            raise ValueError(
                f'GPU {common[0]} is in engine.gpus and in trainer.gpus, and engine.share is "split": give each its '
                'own GPUs, or set engine.share = "sleep" or "cache"'
            )
        if not common and self.engine.share != "split":
            raise ValueError(
                f"engine.gpus {engine} and trainer.gpus {trainer} have no GPU in common: the engine would pause for "
                'nothing. Set engine.share = "split"'
            )

    def _know_recipes(self) -> None:
        """Raise ValueError for a recipe that does not exist; give the judge each alias's recipe."""
        of_aliases = {name: alias.judge_recipe for name, alias in self.aliases.items() if alias.judge_recipe}
        named = {f"aliases.{name}.judge_recipe": recipe for name, recipe in of_aliases.items()}
        if self.campaign.judge_recipe:
            named["campaign.judge_recipe"] = self.campaign.judge_recipe
        known = self.judge.known_recipes()
        for key, recipe in named.items():
            if recipe not in known:
                raise ValueError(f"{key} is {recipe!r}, not a recipe of [judge.recipes] (known: {', '.join(known)})")
        self.judge = self.judge.for_aliases(of_aliases)

    def providers(self) -> list[str]:
        """The names of other providers' models."""
        return [model.name for model in self.proxy.models]

    def model_names(self) -> list[str]:
        """The names that agents may ask for."""
        return [*self.declared_aliases(), *self.providers()]

    def overrides(self) -> dict[str, dict[str, float]]:
        """The sampling values that replace a client's, by alias."""
        values_by_alias = {name: alias.sampling.override.values() for name, alias in self.aliases.items()}
        return {name: values for name, values in values_by_alias.items() if values}

    def shadows(self) -> dict[str, ShadowSettings]:
        """The shadow settings of each alias that has shadow answers, by alias."""
        return {name: alias.shadow for name, alias in self.aliases.items() if alias.shadow.share > 0}

    def fallbacks(self) -> dict[str, str]:
        """The model that answers for an alias while no engine can, by alias."""
        return {name: alias.fallback for name, alias in self.aliases.items() if alias.fallback is not None}


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, the source of each value by dotted key, and notes about variables that were ignored."""

    settings: HoneSettings
    origin: dict[str, str]
    file: Path | None
    notes: tuple[str, ...] = ()
