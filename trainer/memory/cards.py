"""The GPUs that `hone plan` knows by name: memory, and peak arithmetic in bfloat16.

Owns: reading `--gpu`, a name or a number of GiB. Refuses: what fits on a card (`trainer.memory.plan`).
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

from trainer.errors import PlanInvalid


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU. `gib`: its whole memory; `peak_flops`: dense bfloat16 with float32 sums, a second; None: not known."""

    name: str
    gib: float
    peak_flops: float | None = None

    def __str__(self) -> str:
        return self.name if self.name.endswith("GiB") else f"{self.name} ({self.gib:.0f} GiB)"


# Memory: what `nvidia-smi` shows as total, less than the nominal size. FLOP/s: without sparsity; NVIDIA's tables often
# show twice that.
CARDS: Final = (
    Card("L4", 22.5, 121e12),  # NVIDIA L4 datasheet: 242 with sparsity
    Card("A10G", 22.5, 70e12),  # NVIDIA A10G datasheet (AWS G5): 140 with sparsity
    Card("RTX 3090", 24.0, 71e12),  # GA102 whitepaper, appendix A, table 9
    Card("RTX 4090", 24.0, 165.2e12),  # Ada whitepaper 1.1, appendix A
    Card("RTX 5090", 31.8, 209.5e12),  # RTX Blackwell whitepaper 1.1, appendix A
    Card("A100 40GB", 40.0, 312e12),  # NVIDIA A100 datasheet
    Card("L40S", 45.0, 362e12),  # NVIDIA L40S datasheet: 733 with sparsity
    Card("RTX 6000 Ada", 48.0, 364e12),  # Ada whitepaper, as AD102 of the L40: 728 with sparsity
    Card("H100", 79.6, 989e12),  # NVIDIA H100 datasheet, SXM5: 1,979 with sparsity
    Card("A100", 80.0, 312e12),  # NVIDIA A100 datasheet, 80 GB
    Card("H200", 140.4, 989e12),  # NVIDIA H200 datasheet: 1,979 with sparsity
    Card("B200", 179.0, 2250e12),  # NVIDIA DGX B200 datasheet: 36 PFLOP/s for eight with sparsity
)
_OTHER_NAMES: Final = {"a10080": "A100", "a10040": "A100 40GB", "6000ada": "RTX 6000 Ada", "rtx6000": "RTX 6000 Ada"}
_MOST_GIB: Final = 100_000.0


def find_card(named: str) -> Card:
    """Return the card of a name, or of a number of GiB. Raises `PlanInvalid`."""
    known = {_key(card.name): card for card in CARDS}
    known |= {key.removeprefix("rtx"): card for key, card in known.items() if card.name.startswith("RTX")}
    known |= {key: known[_key(name)] for key, name in _OTHER_NAMES.items()}
    if (card := known.get(_key(named))) is not None:
        return card
    if re.fullmatch(r"\d+(\.\d+)?\s*(gi?b)?", named.strip(), re.IGNORECASE):
        gib = float(re.sub(r"[^\d.]", "", named))
        if not 0 < gib < _MOST_GIB:
            raise PlanInvalid(f"--gpu {named}: a card of {gib:g} GiB does not exist.")
        return Card(f"{gib:g} GiB", gib)
    if words := [known[word] for word in re.split(r"[^a-z0-9]+", named.lower()) if word in known]:
        return words[0]  # a driver's name, as "NVIDIA H100 80GB HBM3"
    near = difflib.get_close_matches(_key(named), known, 1, cutoff=0.6)
    hint = f" Did you mean {known[near[0]].name}?" if near else ""
    names = ", ".join(card.name for card in CARDS)
    raise PlanInvalid(
        f"--gpu {named!r} is no card that Hone knows ({names}).{hint} Or give its memory in GiB: --gpu 24."
    )


def card_of(name: str, gib: float) -> Card:
    """Return the card that a driver names; with what the table says of its arithmetic, and the driver of its memory."""
    found = [card for card in CARDS if _key(card.name.removesuffix(" 40GB")) in _key(name)]
    longest = max(found, key=lambda card: (len(card.name), -abs(card.gib - gib)), default=None)
    return Card(longest.name, gib, longest.peak_flops) if longest is not None else Card(f"{gib:.0f} GiB", gib)


def _key(name: str) -> str:
    return re.sub(r"nvidia|geforce|tesla|[^a-z0-9]|gb$|sxm.*|pcie.*", "", name.lower().strip()).removesuffix("gb")
