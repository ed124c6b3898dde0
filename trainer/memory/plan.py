"""Whether engine and trainer fit on a machine's cards, and with which settings.

Owns: the proposed placement, and the sentence that `hone plan`, `hone init`, `hone doctor`, `hone up` and the trainer
show. Refuses: what each of them needs (`trainer.memory.needs`), reading a base, and what else would fit
(`trainer.memory.nearest`). `trainer.memory.planner` makes plans for others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from proxy.settings.gpus import split_gpus
from recorder.models.base_model import ModelProfile
from trainer.errors import UnsupportedModel
from trainer.memory.needs import (
    CONTEXT_BYTES,
    ENGINE_EXTRA_BYTES,
    GIB,
    HOST_EXTRA_BYTES,
    EngineFacts,
    MeasuredBase,
    TrainerNeed,
    cache_bytes,
    measure_base,
)
from trainer.memory.placement import Machine, Placement, place, place_in_turns
from trainer.settings import TrainerSettings

# Share of a card's bf16 peak: FLOPs counted here / (seconds of the committed H100 runs x 989e12), the least and most.
UTILISATION: Final = (0.09, 0.3)
SPEED_ROW: Final = 8192  # tokens of the pass whose FLOPs the speed uses: its rows are as long as those runs' rows
SPEED_TOKENS: Final = 100_000
STEP: Final = 1024  # budgets are offered in multiples of it


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of `hone plan`. `shared` and `apart` are None where they were not asked for (one card or more)."""

    base: MeasuredBase
    settings: TrainerSettings
    engine: EngineFacts
    machine: Machine
    tokens: int
    shared: Placement
    apart: Placement | None
    nearest: tuple[str, ...] = field(default=())

    @property
    def chosen(self) -> Placement:
        """The placement that is proposed: each on a card of its own where there are two, unless they take turns."""
        if self._in_turns:
            return self.shared
        return self.apart if self.apart is not None and (self.apart.fits or not self.shared.fits) else self.shared

    @property
    def _in_turns(self) -> bool:
        return self.engine.share != "split" and not self.engine.elsewhere

    @property
    def trainer_cards(self) -> int:
        """How many cards the engine leaves the trainer, where each has its own."""
        return self.machine.cards - (0 if self.engine.elsewhere else 1)

    @property
    def fits(self) -> bool:
        """Whether the set-up runs."""
        return self.chosen.fits

    @property
    def sentence(self) -> str:
        """The answer in one sentence; where it does not fit, with the nearest set-up that does."""
        chosen, name = self.chosen, self.base.profile.name
        alone = f" and a row of {self.longest_row:,}" if self.longest_row > self.tokens else ""
        has_host = chosen.trainer.host or chosen.host
        host = f" (and {_gib(self.host_bytes)} of the machine's memory)" if has_host else ""
        if chosen.host and self.machine.host_bytes is not None and chosen.host > self.machine.host_bytes:
            host = f" (and {_gib(chosen.host)} of the machine's memory, which has {_gib(self.machine.host_bytes)})"
        copy = f" on a copy in {self.settings.quantize}" if self.settings.quantize else ""
        passes = f"passes of {self.tokens:,} tokens{alone}{copy}"
        each = " on each of its cards" if chosen.trainers > 1 else ""
        trainer = f"the trainer needs {_gib(chosen.trainer.total)}{host}{each} for {passes}"
        both = trainer if self.engine.elsewhere else f"{trainer} and the engine at least {_gib(chosen.engine.least)}"
        verb = "fits" if chosen.fits else "does not fit"
        nearest = "" if chosen.fits else f" {nearest_words(self.nearest)}"
        return f"{name} {verb} on {chosen.where}: {both}.{nearest}"

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The estimated seconds of training for `SPEED_TOKENS` tokens, from and to; None without the card's peak."""
        peak = self.machine.card.peak_flops
        if peak is None:
            return None
        row = max(SPEED_ROW, self.longest_row if self.longest_row > self.settings.token_budget else 0)
        flops = self.base.flops(row) / row * SPEED_TOKENS
        low, high = (flops / (peak * share) for share in reversed(UTILISATION))
        return low, high

    @property
    def host_bytes(self) -> int:
        """What is needed of the machine's own memory: for loading the base, and later for layers' inputs; for all that
        leaves a card that is used in turns.
        """
        if self.chosen.host:
            return self.chosen.host
        return max(self.base.high.plain_base, self.chosen.trainer.host) + 2 * self.base.high.lora + HOST_EXTRA_BYTES

    @property
    def longest_row(self) -> int:
        """Tokens of the longest row that is planned."""
        return self.chosen.trainer.longest

    def setting_values(self, placement: Placement) -> dict[str, Any]:
        """The settings of hone.toml for a placement, by their dotted name."""
        values: dict[str, Any] = {}
        if not self.engine.elsewhere:
            values["engine.gpu_memory_utilization"] = placement.share
            if placement.host:
                values["engine.share"] = self.engine.share
            else:
                values["engine.kv_cache_bytes"] = placement.cache
            if placement.trainers > 1:
                values["engine.gpus"], values["trainer.gpus"] = [placement.trainers], list(range(placement.trainers))
            elif not placement.is_shared:
                values["engine.gpus"], values["trainer.gpus"] = split_gpus(self.machine.cards)
            if placement.cache < placement.engine.context_cache:
                values["engine.max_model_len"] = _longest(self.base.profile, placement.cache)
        if placement.trainers > 1:
            values |= {"trainer.processes": placement.trainers, "trainer.shard_base": self.settings.shard_base}
        if self.settings.quantize:
            values["trainer.quantize"] = self.settings.quantize
        values["trainer.token_budget"] = self.tokens
        values["trainer.gradient_checkpointing"] = self.settings.gradient_checkpointing
        values["trainer.offload_inputs"] = self.settings.offload_inputs
        if self.base.target is not None:
            values["trainer.target"] = list(self.base.target)
        return values

    def as_json(self) -> dict[str, Any]:
        """The whole answer as JSON; sizes in bytes."""
        chosen = self.chosen
        return {
            "model": self.base.profile.name,
            "card": {"name": self.machine.card.name, "gib": self.machine.card.gib},
            "gpus": self.machine.cards,
            "fits": self.fits,
            "sentence": self.sentence,
            "nearest": list(self.nearest),
            "trainer": {
                "tokens": self.tokens,
                "row_tokens": self.longest_row,
                "held": chosen.trainer.held,
                "reserved": chosen.trainer.reserved,
                "context": CONTEXT_BYTES,
                "total": chosen.trainer.total,
                "phases": dict(self.base.high.peaks),
                "base": self.base.high.base,
                "plain_base": self.base.high.plain_base,
                "lora": self.base.high.lora,
                "optimizer": self.base.high.optimizer,
                "host": self.host_bytes,
                "offloaded": chosen.trainer.host,
            },
            "engine": {
                "weights": chosen.engine.weights,
                "loras": chosen.engine.loras,
                "extra": ENGINE_EXTRA_BYTES,
                "row_cache": chosen.engine.row_cache,
                "least": chosen.engine.least,
            },
            "placements": {
                name: {"fits": one.fits, "settings": self.setting_values(one) if one.fits else {}}
                for name, one in (("together", self.shared), ("apart", self.apart))
                if one is not None
            },
            "settings": self.setting_values(chosen) if self.fits else {},
            "estimated_seconds": None if self.seconds is None else [round(one, 2) for one in self.seconds],
            "estimated_for_tokens": SPEED_TOKENS,
        }


def nearest_words(nearest: tuple[str, ...]) -> str:
    """The nearest set-ups as the end of a sentence."""
    if not nearest:
        return "No smaller budget, model of the family or card that Hone knows fits."
    return f"Nearest that fits: {'; or '.join(nearest)}."


def _longest(profile: ModelProfile, cache: int) -> int:
    """The longest context whose keys and values fit into a cache, in steps."""
    length = STEP
    while cache_bytes(profile, length + STEP) <= cache:
        length += STEP
    return length


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"


def plan_base(
    profile: ModelProfile,
    machine: Machine,
    settings: TrainerSettings,
    engine: EngineFacts,
    tokens: int,
    row_tokens: int | None,
) -> Plan:
    """Measure a base, and plan it. Raises as `measure_base`."""
    try:
        return plan_measured(measure_base(profile, settings, tokens, row_tokens), machine, settings, engine, tokens)
    except UnsupportedModel:
        if row_tokens is None or row_tokens <= tokens:
            raise
    # rows of this base cannot be divided: a pass has to hold the whole row
    return plan_measured(measure_base(profile, settings, row_tokens), machine, settings, engine, row_tokens)


def plan_measured(
    base: MeasuredBase, machine: Machine, settings: TrainerSettings, engine: EngineFacts, tokens: int
) -> Plan:
    """Plan a base that was measured, with passes of `tokens`."""
    return plan_for(base.trainer(tokens), base, machine, settings, engine)


def plan_for(
    trainer: TrainerNeed, base: MeasuredBase, machine: Machine, settings: TrainerSettings, engine: EngineFacts
) -> Plan:
    """Place a trainer of this need, and the engine of its base."""
    served, host = base.engine(trainer.longest, engine, settings.rank), machine.host_bytes
    if engine.share != "split" and not engine.elsewhere:
        copies = base.high.base + trainer.host + 2 * base.high.lora + HOST_EXTRA_BYTES
        in_turns = place_in_turns(trainer, served, machine.card, engine.share, copies, host)
        return Plan(base, settings, engine, machine, trainer.tokens, in_turns, None)
    shared = place(trainer, served, machine.card, is_shared=True, elsewhere=engine.elsewhere, host_bytes=host)
    apart = None
    if settings.processes > 1:
        shared, apart = _place_processes(shared, machine, settings.processes, is_elsewhere=engine.elsewhere)
    elif machine.cards > 1:
        apart = place(trainer, served, machine.card, is_shared=False, elsewhere=False, host_bytes=host)
    return Plan(base, settings, engine, machine, trainer.tokens, shared, apart)


def _place_processes(
    one: Placement, machine: Machine, count: int, *, is_elsewhere: bool
) -> tuple[Placement, Placement | None]:
    """Place a trainer of `count` processes, each on a card of its own: return `Plan.shared` and `Plan.apart`.

    `one`: the placement of one of them on a card with the engine, or alone where the engine is elsewhere.
    """
    if is_elsewhere:
        return replace(one, trainers=count, fits=one.fits and machine.cards >= count), None
    placed = place(
        one.trainer, one.engine, machine.card, is_shared=False, elsewhere=False, host_bytes=machine.host_bytes
    )
    placed = replace(placed, trainers=count, fits=placed.fits and machine.cards > count)
    return replace(one, fits=False), placed


def share_base(plan: Plan) -> Plan | None:
    """The same with a share of the base on each card but the engine's, or in each of `trainer.processes`.

    None: there are too few cards, or the plan is for a card in turns, or for a copy in 4 bits, which has no shares.
    """
    free = plan.trainer_cards
    count = plan.settings.processes if plan.settings.processes > 1 else free
    in_turns = plan.engine.share != "split" and not plan.engine.elsewhere
    if not 2 <= count <= free or plan.settings.quantize is not None or in_turns:
        return None
    settings = plan.settings.model_copy(update={"processes": count, "shard_base": True})
    return plan_measured(replace(plan.base, settings=settings), plan.machine, settings, plan.engine, plan.tokens)
