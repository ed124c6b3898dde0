"""The descriptions of settings: the docstrings behind their fields.

Owns: reading them from the sources of the models. Refuses: printing them.

Pydantic can read them too (`use_attribute_docstrings`), whenever a model is imported: that is a fifth of the time of
`hone status`, which shows none.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache

from pydantic import BaseModel


@cache
def field_descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the descriptions of a model's fields, by name; a field without one is absent."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner.__module__.partition(".")[0] not in _LIBRARIES:
            found |= dict(_docstrings(owner))
    return {name: found[name] for name in model.model_fields if name in found}


_LIBRARIES = frozenset({"pydantic", "pydantic_settings"})


def _docstrings(owner: type[BaseModel]) -> Iterator[tuple[str, str]]:
    [declared] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(declared, ast.ClassDef)
    for field, after in zip(declared.body, declared.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            yield field.target.id, inspect.cleandoc(after.value.value)
