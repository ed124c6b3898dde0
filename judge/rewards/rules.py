"""Rules: Hone's own checks of one trajectory, without a judge model and without user code.

Owns: each rule as one function of the trajectory. Refuses: the list of rules and their valid values
(`recorder.base.rules`), and the cost of breaking one (`judge.scoring.reward_parts`, `judge.rewards.code_checks`).

A part with the value 1 means that the rule was broken, with an explanation; 0 means that it was kept. A rule that
cannot be checked has no value, and never counts as kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from judge.rewards.part import RewardPart
from recorder.base.connection_failures import describe_failure
from recorder.base.json_limits import parse_strict_json_text
from recorder.base.rules import Rule
from recorder.states import CallKind, CallState
from recorder.views.trajectories.shapes import CallView, TrajectoryView

MATCH_TIMEOUT_S: Final = 1.0  # an expression that needs longer for one answer may never end for another
MAX_SHOWN_CHARS: Final = 200

Violation = str | None  # how a rule is broken; None: it is not


class _RuleUnchecked(Exception):
    """A rule cannot be checked on this trajectory; the message says why."""


def check_rule(rule: Rule, value: Any, run: TrajectoryView) -> RewardPart:
    """Check one rule on a trajectory. It may take a while: not for the event loop."""
    try:
        broken = RULES[rule](value, run)
    except _RuleUnchecked as e:
        return RewardPart(None, f"it could not be checked: {e}", undecided=True)
    return RewardPart(0.0) if broken is None else RewardPart(1.0, broken)


def _answer_schema(schema: Any, run: TrajectoryView) -> Violation:
    from jsonschema import Draft202012Validator  # here and below: libraries that most recipes do not need
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY  # holds the drafts only, and fetches nothing
    from referencing.exceptions import Unresolvable

    answer = _answer(run)
    if answer is None:
        return "there is no answer"
    try:
        given = parse_strict_json_text(answer)
    except (ValueError, RecursionError) as e:
        return f"the answer is not JSON: {e}"[:MAX_SHOWN_CHARS]
    draft = _patient(validator_for(schema, default=Draft202012Validator), _PatternSearches())
    try:
        wrong = best_match(draft(schema, registry=REGISTRY).iter_errors(given))
    except (Unresolvable, RecursionError, ArithmeticError) as e:  # ArithmeticError: numbers that no float holds
        raise _RuleUnchecked(f"the schema cannot be followed: {describe_failure(e)}"[:MAX_SHOWN_CHARS]) from e
    return None if wrong is None else f"the answer does not match the schema: {wrong.json_path}: {wrong.message}"[:500]


def _patient(draft: Any, searches: _PatternSearches) -> Any:
    """A draft of JSON Schema in which all regular expressions of one check share one time limit.

    This includes subschemas that name a draft of their own by `$schema`, and references to the whole schema.

    It redefines the keywords that match texts with expressions, except `unevaluatedProperties` beside
    `patternProperties`, which is refused at start (`recorder.base.rules`).
    """
    import attrs
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend, validator_for

    found = searches.found

    def pattern(validator: Any, expression: str, given: Any, schema: Any) -> Iterator[ValidationError]:
        if validator.is_type(given, "string") and not found(expression, given):
            yield ValidationError(f"{given!r:.{MAX_SHOWN_CHARS}} does not match {expression!r:.{MAX_SHOWN_CHARS}}")

    def pattern_properties(validator: Any, patterns: Any, given: Any, schema: Any) -> Iterator[ValidationError]:
        if validator.is_type(given, "object"):
            for expression, inner in patterns.items():
                for name in (name for name in given if found(expression, name)):
                    yield from validator.descend(given[name], inner, path=name, schema_path=expression)

    def additional_properties(validator: Any, inner: Any, given: Any, schema: Any) -> Iterator[ValidationError]:
        if validator.is_type(given, "object"):
            patterns = schema.get("patternProperties", {})
            known = schema.get("properties", {})
            for name in (n for n in given if n not in known and not any(found(one, n) for one in patterns)):
                if inner is False:
                    yield ValidationError(f"Additional properties are not allowed ({name!r:.80} was unexpected)")
                else:
                    yield from validator.descend(given[name], inner, path=name)

    timed = {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
    }
    patient: Any = extend(draft, {keyword: check for keyword, check in timed.items() if keyword in draft.VALIDATORS})

    def evolve(validator: Any, **changes: Any) -> Any:
        """The validator of a subschema. The library's own `evolve` would take the unchanged draft that it names."""
        named = validator_for(changes.get("schema", validator.schema), default=draft)
        kind = patient if named is draft else _patient(named, searches)
        given = {field.alias: getattr(validator, field.name) for field in attrs.fields(patient) if field.init}
        return kind(**(given | changes))

    patient.evolve = evolve
    return patient


def _regex(expression: Any, run: TrajectoryView) -> Violation:
    answer = _answer(run)
    if answer is None:
        return "there is no answer"
    found = _PatternSearches().found(expression, answer)
    return None if found else f"the answer does not match {expression!r:.{MAX_SHOWN_CHARS}}"


class _PatternSearches:
    """Searches for expressions that share one time limit, `MATCH_TIMEOUT_S` from now."""

    def __init__(self) -> None:
        self._until = time.monotonic() + MATCH_TIMEOUT_S

    def found(self, expression: str, text: str) -> bool:
        """Whether an expression matches anywhere in a text. Raises `_RuleUnchecked` if that takes too long."""
        import regex

        left_s = self._until - time.monotonic()
        try:
            if left_s <= 0:
                raise TimeoutError
            # concurrent: other threads continue meanwhile
            return regex.search(expression, text, timeout=left_s, concurrent=True) is not None
        except TimeoutError:
            raise _RuleUnchecked(f"the expression takes longer than {MATCH_TIMEOUT_S:g} s on the answer") from None
        except (regex.error, OverflowError) as e:  # in a schema: another library checks its expressions at start
            raise _RuleUnchecked(f"the expression {expression!r:.80} cannot be followed: {e}") from e


def _forbidden_tools(names: Any, run: TrajectoryView) -> Violation:
    called = _tools_called(run)
    if forbidden := [name for name in names if name in called]:
        return f"it called {', '.join(forbidden)}"
    if None in called:
        raise _RuleUnchecked("a tool call has no name")
    return None


def _required_tools(names: Any, run: TrajectoryView) -> Violation:
    called = _tools_called(run)
    missing = [name for name in names if name not in called]
    return f"it never called {', '.join(missing)}" if missing else None


def _max_turns(most: Any, run: TrajectoryView) -> Violation:
    return _over(most, len(_turns(run)), "answers of the model")


def _max_tool_calls(most: Any, run: TrajectoryView) -> Violation:
    return _over(most, sum(1 for _ in _tool_calls(run)), "tool calls")


def _max_tokens(most: Any, run: TrajectoryView) -> Violation:
    counts = [(call.usage or {}).get("completion_tokens") for call in _turns(run)]
    known = [count for count in counts if isinstance(count, int)]
    over = _over(most, sum(known), "sampled tokens")
    if over is None and len(known) < len(counts):
        raise _RuleUnchecked(f"the tokens of {len(counts) - len(known)} answers are not known")
    return over


def _over(most: int, there: int, what: str) -> Violation:
    return f"{there} {what}, at most {most}" if there > most else None


# Reading a trajectory


def _answer(run: TrajectoryView) -> str | None:
    """The text of the last message, if it is a non-empty answer of the model."""
    last = run.messages[-1] if run.messages else None
    if last is None or last.get("role") != "assistant" or last.get("content") in (None, ""):
        return None
    if not isinstance(content := last.get("content"), str):
        raise _RuleUnchecked("the answer is not text alone")
    return content


def _turns(run: TrajectoryView) -> list[CallView]:
    """The complete answers of the agent and its sub-agents, including dropped ones; no auxiliary calls."""
    return [
        call
        for call in run.calls
        if call.state is CallState.COMPLETE and call.call_kind is not CallKind.AUX and call.superseded_by is None
    ]


def _tool_calls(run: TrajectoryView) -> Iterator[Any]:
    """The model's tool calls. Of several choices of one call, only those that the agent continued count."""
    taken = {*run.main_path, *((call.parent_call_id, call.parent_choice or 0) for call in run.calls)}
    for call in _turns(run):
        for choice in call.choices:
            if len(call.choices) == 1 or (call.id, choice.index) in taken:
                yield from _calls_in(choice.message or {})


def _calls_in(message: Mapping[str, Any]) -> Iterator[Any]:
    calls = message.get("tool_calls")
    yield from calls if isinstance(calls, Sequence) and not isinstance(calls, str) else ()
    if message.get("function_call") is not None:
        yield {"function": message["function_call"]}


def _tools_called(run: TrajectoryView) -> set[str | None]:
    """The names of the called tools as the model sees them; None for a call without a name."""
    return {_name(call) for call in _tool_calls(run)}


def _name(call: Any) -> str | None:
    form = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
    name = form.get("name") if isinstance(form, Mapping) else None
    return name if isinstance(name, str) else None


RULES: Final[Mapping[Rule, Callable[[Any, TrajectoryView], Violation]]] = {
    "answer_schema": _answer_schema,
    "forbidden_tools": _forbidden_tools,
    "required_tools": _required_tools,
    "max_turns": _max_turns,
    "max_tool_calls": _max_tool_calls,
    "max_tokens": _max_tokens,
    "regex": _regex,
}
