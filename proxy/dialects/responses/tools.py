"""The tools of a request of the Responses API: in the model's form, and as the client declared them.

Owns: tools → chat functions, by the table (`proxy.dialects.tool_types.table`); tool_choice; the client's tool for each
function of the model; and the outline, which together with the recorded functions restores the client's declarations.
Refuses: tool calls (`tool_items.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.dialects.tool_types import custom, schemas, table
from proxy.errors import BadRequest

Body = dict[str, Any]

_NAMED: Final = ("function", "custom")


@dataclass(frozen=True, slots=True)
class ToolOrigin:
    """The client's tool behind a function of the model."""

    type: str = "function"
    name: str = ""
    namespace: str | None = None

    @property
    def plain(self) -> bool:
        """Whether the client sees a function with the model's name."""
        return self.type == "function" and self.namespace is None


@dataclass(slots=True)
class Toolbox:
    """The tools of a request."""

    functions: list[Body] = field(default_factory=list)  # for the engine
    origins: dict[str, ToolOrigin] = field(default_factory=dict)  # by the model's name
    outline: list[Body] = field(default_factory=list)  # as declared, without the contents of `functions`
    loaded: list[Body] = field(default_factory=list)  # the same for tools that were found later
    dropped: list[str] = field(default_factory=list)  # types


def read_tools(tools: Sequence[object], found_later: Sequence[tuple[str, object]] = ()) -> Toolbox:
    """Return the tools of a request, and the tools that searches in its conversation found (`found_later`), each with
    its place.

    Raises BadRequest.
    """
    kinds = {table.tool_kind(tool) for tool in tools}
    box = Toolbox()
    given = _ToolboxBuilder(box, box.outline, deferred="tool_search" in kinds)
    for at, tool in enumerate(tools):
        given.add(_offered(tool) if "hosted tool_search" in kinds else tool, f"tools[{at}]")
    later = _ToolboxBuilder(box, box.loaded, again=True)
    for where, tool in found_later:
        later.add(_offered(tool), where)
    table.require_some(box.functions, box.dropped)
    return box


def tool_model_name(namespace: str | None, name: str) -> str:
    """Return the model's name of a tool."""
    return name if namespace is None else f"{namespace}__{name}"


def declared_tools(outline: Sequence[Body], functions: Sequence[Mapping[str, Any]]) -> list[Body]:
    """Return the tools as the client declared them, from their outline and their functions."""
    by_name = {function["function"]["name"]: function["function"] for function in functions}
    return [_restored(tool, by_name) for tool in outline]


def tool_origins(outline: Sequence[Body]) -> dict[str, ToolOrigin]:
    """Return the tool of each function of the model, from an outline."""
    origins = {}
    for tool in outline:
        inside = tool["tools"] if tool["type"] == "namespace" else [tool]
        namespace = tool["name"] if tool["type"] == "namespace" else None
        for one in inside:
            origin = ToolOrigin(one["type"], one.get("name", one["type"]), namespace)
            origins[tool_model_name(namespace, origin.name)] = origin
    return origins


def is_plain(outline: Sequence[Body]) -> bool:
    """Whether all tools are functions, which are recorded completely anyway."""
    return all(map(_is_cut, outline))


class _ToolboxBuilder:
    """Adds tools to a toolbox. `deferred`: tools marked so are not offered until a search finds them.

    `again`: tools that are offered already may be repeated, and stay unchanged.
    """

    def __init__(self, box: Toolbox, outline: list[Body], *, deferred: bool = False, again: bool = False) -> None:
        self._box = box
        self._outline = outline
        self._deferred = deferred
        self._again = again

    def add(self, tool: object, where: str) -> None:
        """Add one declared tool. Raises BadRequest."""
        rule = table.find_rule("responses", tool)
        if not isinstance(tool, dict) or rule is None or rule.treatment == "refused":
            raise table.tool_refusal("responses", tool, where)
        kind = table.tool_kind(tool)
        if rule.treatment == "dropped":
            self._box.dropped.append(str(tool["type"]))
        elif kind == "namespace":
            self._namespace(tool, where)
        else:
            outlined = self._one(tool, kind, None, "", where)
            if outlined is not None:
                self._outline.append(outlined)

    def _namespace(self, tool: Body, where: str) -> None:
        """Add a namespace. Its first tool carries its description for the model."""
        name, tools = tool.get("name"), tool.get("tools")
        if not isinstance(name, str) or not isinstance(tools, list):
            raise BadRequest(f"{where} must have a 'name' and a list of 'tools'.", param=where, code="invalid_type")
        inside: list[Body] = []
        offered = len(self._box.functions)
        for at, one in enumerate(tools):
            here, kind = f"{where}.tools[{at}]", table.tool_kind(one)
            if not isinstance(one, dict) or kind not in ("function", "custom"):
                raise BadRequest(f"{here} must be a function or a custom tool.", param=here, code="unsupported_tool")
            about = _about(tool) if offered == len(self._box.functions) else ""
            outlined = self._one(one, kind, name, about, here)
            if outlined is not None:
                inside.append(outlined)
        if inside or not tools:
            self._outline.append({**tool, "tools": inside})

    def _one(self, tool: Body, kind: str, namespace: str | None, about: str, where: str) -> Body | None:
        """Offer one tool to the model and return its outline; None if it is offered already."""
        name = tool.get("name") if kind in _NAMED else kind
        if not isinstance(name, str):
            raise BadRequest(f"{where}.name must be a text.", param=f"{where}.name", code="invalid_type")
        if self._deferred and tool.get("defer_loading"):
            return tool
        origin, model_name = ToolOrigin(kind, name, namespace), tool_model_name(namespace, name)
        before = self._box.origins.get(model_name)
        if before == origin and self._again:
            return None
        if before is not None and not (before == origin and origin.plain):
            raise _collision(model_name, where)
        self._box.origins[model_name] = origin
        self._box.functions.append(_function(tool, kind, model_name, about, where))
        return {"type": "function", "name": name} if kind == "function" else tool


def _offered(tool: object) -> object:
    """Return a tool without the mark `defer_loading`: Hone runs no search, or the search has already found the tool."""
    if not isinstance(tool, dict):
        return tool
    without_mark = {name: value for name, value in tool.items() if name != "defer_loading"}
    inside = tool.get("tools")
    return without_mark | {"tools": [_offered(one) for one in inside]} if isinstance(inside, list) else without_mark


def _function(tool: Body, kind: str, name: str, about: str, where: str) -> Body:
    if kind == "function":
        function = {key: value for key, value in tool.items() if key != "type" and value is not None}
    elif kind == "custom":
        function = custom.custom_to_function(tool, name, where)["function"]
    elif kind == "tool_search":
        function = {key: tool[key] for key in ("description", "parameters") if tool.get(key) is not None}
        function = schemas.TOOL_SEARCH["function"] | function
    else:
        function = schemas.OPENAI[kind]["function"]
    if about:
        described = f"{about}\n\n{function['description']}" if "description" in function else about
        function = function | {"description": described}
    return {"type": "function", "function": function | {"name": name}}


def _about(namespace: Body) -> str:
    described = namespace.get("description")
    return f"{namespace['name']}: {described}" if described and isinstance(described, str) else ""


def _restored(tool: Body, by_name: Mapping[str, Body]) -> Body:
    if tool["type"] != "namespace":
        return _function_restored(tool, None, "", by_name)
    inside, about = [], _about(tool)
    for one in tool["tools"]:
        inside.append(_function_restored(one, tool["name"], about, by_name))
        if _is_cut(one) or (one["type"] == "custom" and tool_model_name(tool["name"], one["name"]) in by_name):
            about = ""  # the first offered tool had it
    return {**tool, "tools": inside}


def _function_restored(tool: Body, namespace: str | None, about: str, by_name: Mapping[str, Body]) -> Body:
    function = by_name.get(tool_model_name(namespace, tool["name"])) if _is_cut(tool) else None
    if function is None:  # complete already, or its recorded function was redacted
        return tool
    restored = {"type": "function", **function, "name": tool["name"]}
    if about and restored.get("description"):
        restored["description"] = restored["description"].removeprefix(about)
        if not restored["description"]:
            del restored["description"]
        else:
            restored["description"] = restored["description"].removeprefix("\n\n")
    return restored


def _is_cut(tool: Body) -> bool:
    """Whether an outline leaves the rest of a tool to its function."""
    return tool["type"] == "function" and len(tool) == 2


def _collision(name: str, where: str) -> BadRequest:
    return BadRequest(
        f"{where} is named {name!r:.120} for the model, as another tool is: rename one of them. A tool inside a "
        "namespace is named <namespace>__<name>.",
        param=where,
        code="invalid_value",
    )


# --- tool_choice


def chat_tool_choice(choice: object, box: Toolbox) -> object:
    """Return `tool_choice` in chat's form. Raises BadRequest."""
    if choice is None or choice in ("auto", "none"):
        return choice or "auto"
    if choice == "required":
        if not box.functions:
            raise BadRequest("Tool choice 'required' must be specified with 'tools' parameter.", param="tool_choice")
        return choice
    kind = choice.get("type") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or kind not in (*_NAMED, *schemas.OPENAI, "tool_search"):
        raise table.demanded_refusal("responses", kind) or BadRequest(
            f"the field 'tool_choice' is {choice!r:.80}: give 'auto', 'none', 'required', or a tool by its type and "
            "name.",
            param="tool_choice",
            code="unsupported_parameter",
        )
    key = (kind, choice.get("name", kind), choice.get("namespace"))
    name = next((name for name, o in box.origins.items() if (o.type, o.name, o.namespace) == key), None)
    if name is None:
        raise BadRequest(f"Tool choice {kind!r} not found in 'tools' parameter.", param="tool_choice")
    return {"type": "function", "function": {"name": name}}
