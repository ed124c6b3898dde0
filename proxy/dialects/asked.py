"""A request as it was read: what the client asked, and where the engine is asked something else on purpose.

Owns: the values that stand in for the client's (`override`), what is offered without a grammar, and the sampling that
is in force with both. Refuses: whether they should (the settings and `proxy.serving`), and any format's body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from proxy.dialects import engine_fields, forcing
from proxy.dialects.base import Rules
from recorder.content.turns import Request

Body = dict[str, Any]


class Asked:
    """A request whose fields are the engine's own. What it answers is each dialect's."""

    __slots__ = ("_asked", "_rules", "replaced", "request")

    def __init__(self, request: Request, asked: Body, rules: Rules) -> None:
        self.request = request
        self.replaced: Mapping[str, float] = {}
        self._asked = asked
        self._rules = rules

    @property
    def plainly(self) -> tuple[str, ...]:
        """What the client would have the engine hold the model to, and the engine is not told."""
        return forcing.offered_plainly(self._asked, self._rules)

    def override(self, values: Mapping[str, float]) -> None:
        """Let the engine sample with these values in place of the client's, which stay in the request's fields."""
        asked = self._asked if self._rules.defaults == "engine" else {**engine_fields.NEUTRAL, **self._said()}
        self.replaced = {name: value for name, value in values.items() if asked.get(name) != value}
        self._in_force()

    def as_asked(self) -> None:
        """Offer nothing plainly and replace nothing: whoever answers now is not learned from."""
        self._rules = replace(self._rules, strict_tools="engine", forced_tools="engine")
        self.replaced = {}
        self._in_force()

    def _said(self) -> Body:
        return {name: value for name, value in self._asked.items() if value is not None}

    def _in_force(self) -> None:
        fields = {**self._asked, **self.replaced}
        sampling = engine_fields.sampling(fields, self._rules, forcing.forced(fields, self._rules))
        self.request = replace(self.request, sampling=sampling)
