"""A one-sided test whether a mean is lower than claimed, valid at any time: it may be read after every observation.

Owns: the test by betting (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2020,
sections 2 and 4). A bettor against the claim starts with a capital of 1 and stakes part of it on each next value being
lower. If the mean is as high as claimed, no staking increases the expected capital. So the capital reaches 1/α with a
probability of at most α (Ville), however often one looks and whenever one stops. Refuses: what the values are, and what
follows.

The bettor plays several fixed stakes side by side, an equal part of the capital each (a mixture). Fixed stakes do not
depend on the order of the values, so values read again from the store give the same capital.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Parts of the largest stake that can't ruin the doubter. Large ones find a broken version at once, small ones a
# slightly worse one in the end; `benchmarks/canary.py` has what they find.
STAKES: Final = (0.1, 0.2, 0.4, 0.8, 0.95)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SequentialTestResult:
    """What a test has seen so far. `capital` is the highest ever, so that a verdict is never taken back."""

    samples: int
    mean: float
    capital: float
    alpha: float

    @property
    def shown_worse(self) -> bool:
        """Whether the claim is refuted at `alpha`; otherwise nothing is decided."""
        return self.capital >= 1 / self.alpha


def test_mean(values: Sequence[float], *, at_least: float, alpha: float) -> SequentialTestResult:
    """Test the claim that values in 0..1 have a mean of `at_least` or more.

    The claim must be about a value's expectation given the values before it: an observed value never changes, and which
    values count is settled before they are observed.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha} is not between 0 and 1")
    seen = np.asarray(values, dtype=np.float64)
    highest = float(log_capital(seen, at_least=at_least).max(initial=0.0))
    return SequentialTestResult(
        len(seen), float(seen.mean()) if len(seen) else math.nan, math.exp(min(highest, 700.0)), alpha
    )


def log_capital(values: Floats, *, at_least: float) -> Floats:
    """The capital's logarithm after each value, along the last axis. Shape as `values`, which lie in 0..1."""
    if not 0 < at_least < 1:
        raise ValueError(f"a mean of at least {at_least} is not between 0 and 1: no value could refute or support it")
    if not bool(np.all((values >= 0) & (values <= 1))):  # NaN is neither
        raise ValueError("a value to be tested is not in 0..1")
    won = (at_least - values) / (1 - at_least)  # -1 or more: what the doubter wins for a stake of 1
    played = np.zeros_like(values)
    for n, stake in enumerate(STAKES):
        alone = np.cumsum(np.log1p(stake * won), axis=-1) - math.log(len(STAKES))
        played = np.logaddexp(played, alone) if n else alone
    return played
