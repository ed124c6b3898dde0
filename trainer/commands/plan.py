"""`hone plan`: whether engine and trainer fit on a card, and what to type.

Owns: its flags, and printing. Refuses: the plan (`trainer.memory.plan`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from recorder.base.errors import FAILED
from recorder.base.gc_pause import QuickEnd, pause_gc
from recorder.base.terminal import echo, show_table, write_json
from recorder.commands.context import Context

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings
    from proxy.settings.sections import EngineSettings
    from recorder.models.base_model import ModelProfile
    from trainer.memory.cards import Card
    from trainer.memory.needs import EngineFacts
    from trainer.memory.placement import Placement
    from trainer.memory.plan import Plan


@click.command()
@click.option("--model", help="A folder, a Hugging Face id, or a name that Hone knows [the base of hone.toml].")
@click.option("--gpu", metavar="GIB|NAME", help="The card: its memory, or its name (H100, 4090) [this machine's].")
@click.option("--gpus", type=click.IntRange(1, 64), help="How many such cards [1, or this machine's].")
@click.option(
    "--row-tokens",
    type=click.IntRange(2, 10_000_000),
    help="The longest trajectory to train on [trainer.token_budget].",
)
@click.option("--ram", type=float, metavar="GIB", help="The machine's own memory [what is free here, without --gpu].")
@click.pass_obj
def plan(
    context: Context, model: str | None, gpu: str | None, gpus: int | None, row_tokens: int | None, ram: float | None
) -> None:
    """Compute whether a model can be served and trained on a card, and print the settings.

    Nothing is loaded or downloaded: the trainer's own step runs at the model's shapes without data. The exit status is
    1 if it does not fit.
    """
    settings = context.settings()
    card, count = _card(gpu, gpus)
    named = model or settings.trainer.base or settings.engine.base
    if named is None:
        raise click.UsageError("name a model: --model Qwen3-0.6B, a folder, or a Hugging Face id.")
    own = _own_host() if gpu is None else None
    made = _plan(settings, named, card, count, row_tokens, host_bytes=own if ram is None else int(ram * 2**30))
    without = _without_quantize(made, row_tokens)
    price = _service_price(settings, row_tokens)
    if context.json:
        of_service = {"training_service": price} if price is not None else {}
        write_json({**made.as_json(), "without_quantize": None if without is None else _need_of(without), **of_service})
    else:
        _show(made)
        if without is not None:
            echo()
            echo(_compared(without))
        if price is not None:
            echo()
            echo(price)
    raise QuickEnd(0 if made.fits else FAILED)


def _card(gpu: str | None, gpus: int | None) -> tuple[Card, int]:
    from trainer.memory.cards import card_of, find_card

    if gpu is not None:
        return find_card(gpu), gpus or 1
    import torch

    if not torch.cuda.is_available():
        raise click.UsageError("torch sees no GPU on this machine: name a card, as in --gpu 24 or --gpu H100.")
    found = torch.cuda.get_device_properties(0)
    return card_of(found.name, found.total_memory / 2**30), gpus or torch.cuda.device_count()


def _own_host() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def _plan(
    settings: HoneSettings, model: str, card: Card, count: int, row_tokens: int | None, host_bytes: int | None
) -> Plan:
    from trainer.memory.bases import find_base

    base = find_base(model)  # before torch is loaded, which takes seconds
    _require_served(base, settings.engine)
    with pause_gc():  # a collection walks all that was imported, and there is none of a pass to collect
        from trainer.memory.planner import make_plan
        from trainer.runtime.resolved_settings import trainer_settings

        return make_plan(
            base,
            card,
            trainer_settings(settings),
            _engine(settings),
            cards=count,
            row_tokens=row_tokens,
            host_bytes=host_bytes,
        )


def _without_quantize(made: Plan, row_tokens: int | None) -> Plan | None:
    from trainer.memory.planner import plan_without_quantize

    return plan_without_quantize(made, row_tokens)


def _service_price(settings: HoneSettings, row_tokens: int | None) -> str | None:
    if settings.trainer.backend != "tinker":
        return None  # before what reads campaigns and the store is loaded
    from trainer.runtime.service_price import explain_plan_price

    return explain_plan_price(settings, row_tokens)


def _need_of(made: Plan) -> dict[str, object]:
    return {"fits": made.fits, "total": made.chosen.trainer.total, "base": made.base.high.base}


def _compared(without: Plan) -> str:
    """What the base itself would take, in one sentence."""
    total, base = (size / 2**30 for size in (without.chosen.trainer.total, without.base.high.base))
    fits = "fits too" if without.fits else "does not fit"
    return f"Without trainer.quantize it {fits}: the trainer needs {total:.1f} GiB, {base:.1f} of them for the base."


def _require_served(base: ModelProfile, engine: EngineSettings) -> None:
    """Raise `BaseInvalid` for what `hone up` refuses: a family that no engine serves, a context beyond the model's."""
    from recorder.models.refusals import refuse_engine_context
    from recorder.models.served_families import refuse_family

    if engine.urls:
        return
    refusal = refuse_family(base) if engine.python is None else None
    refusal = refusal or refuse_engine_context(
        base.name, base.context_length, engine.max_model_len, engine.args, engine.env
    )
    if refusal is not None:
        raise refusal.error()


def _engine(settings: HoneSettings) -> EngineFacts:
    from trainer.memory.needs import EngineFacts

    engine = settings.engine
    return EngineFacts(engine.max_loras, engine.max_lora_rank, engine.max_model_len, bool(engine.urls), engine.share)


def _show(made: Plan) -> None:
    from trainer.memory import needs as figures
    from trainer.memory.plan import SPEED_TOKENS

    echo(made.sentence)
    echo()
    memory, chosen = made.base.high, made.chosen
    longest = f"{chosen.trainer.longest:,} tokens"
    passes = f"passes of {made.tokens:,} tokens" + (f", a row of {longest}" if chosen.trainer.row_tokens else "")
    rows: list[tuple[str, int, str]] = [
        ("trainer: base", memory.base, made.settings.quantize or ""),
        ("trainer: LoRA and optimizer", memory.lora + memory.optimizer, ""),
        ("trainer: held at the peak", chosen.trainer.held, passes),
        ("trainer: reserved", chosen.trainer.reserved, f"{figures.RESERVED} x held"),
        ("trainer: CUDA context", figures.CONTEXT_BYTES, "not measured"),
        ("trainer: reserved and context", chosen.trainer.total, "this decides"),
    ]
    if not made.engine.elsewhere:
        rows += [
            ("engine: weights and LoRA slots", chosen.engine.weights + chosen.engine.loras, ""),
            ("engine: context, graphs, activations", figures.ENGINE_EXTRA_BYTES, "not measured"),
            ("engine: cache of one row", chosen.engine.row_cache, longest),
        ]
    whose = "the trainer's own memory" if not chosen.host else "what leaves the card, and the trainer's own memory"
    rows.append((f"machine: {whose}", made.host_bytes, "not on the card"))
    show_table(["", "GiB", ""], [[name, f"{size / figures.GIB:.1f}", note] for name, size, note in rows], right=["GiB"])
    for placement in (made.shared, made.apart):
        if placement is not None:
            echo()
            _show_settings(made, _title(made, placement), placement)
    if made.seconds is not None:
        low, high = made.seconds
        echo()
        card = made.machine.card
        echo(f"Training takes {low:.2g} to {high:.2g} s for {SPEED_TOKENS:,} tokens on {card} (estimated).")


def _title(made: Plan, placement: Placement) -> str:
    if placement.trainers > 1:
        what = "a share of the base" if made.settings.shard_base else "a process"
        return f"With {what} on each of {placement.trainers} cards"
    return "On one card" if placement.is_shared else "On two cards"


def _show_settings(made: Plan, title: str, placement: Placement) -> None:
    if not placement.fits:
        echo(f"{title}: it does not fit.")
        return
    echo(f"{title}, in hone.toml:")
    for name, value in made.setting_values(placement).items():
        echo(f"  {name} = {json.dumps(value)}")  # which is also TOML
