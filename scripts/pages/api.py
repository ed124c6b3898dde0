"""docs/api.md: the routes of `/hone/v1` from their OpenAPI schema, the model routes from their registries.

Owns: the page's form. Refuses: what routes do (`proxy.api`), and which scope opens one (`proxy.admission.auth`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from litestar import Litestar
from litestar.di import Provide

from proxy.admission.auth import needed_scope
from proxy.api.routes import HANDLERS, OPENAPI
from proxy.dialects import DIALECTS
from proxy.serving.passthrough import PASSED
from scripts.pages.table import code, table

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "api.md"
_HEAD = """\
# API

**For:** programs that call Hone over HTTP. **You will have:** every route, its scope, its fields and its answer.

- **Keys.** If the proxy has keys, each request carries one: `Authorization: Bearer hone_…` or `x-api-key: hone_…`. The
  tables name the scope that a route needs; the scope `admin` opens every route.
- **No keys.** Hone then serves this machine only, and a changing request must be `application/json`
  ([security](security.md)).
- **Addresses.** Every path may begin with an address, `/t/<trajectory>` or `/g/<group>/t/<trajectory>`. The request
  then belongs to that trajectory ([attribution](attribution.md)).
- **Schema.** `GET /schema` returns the OpenAPI schema of the running program.

(Made from the routes by `python -m scripts.pages --write`.)
"""
_MODEL_HEAD = """\
## Model routes

A model route reads and writes its vendor's format; [connect your agent](your-agent.md) lists what Hone adds. Errors
have the format of the route.
"""
_OWN_HEAD = """\
## Hone's own: `/hone/v1`

Bodies are JSON. Hone refuses a field that is not in the table. An error is a problem document (RFC 9457,
`application/problem+json`) with `type`, `title`, `status` and `detail`, and sometimes `code` and `param`. A trajectory
or a group has the fields that `hone show --json` prints under `trajectory` and `group`.
"""
_SERVED: Final = (  # mounted in `proxy.supervision.app`, without a registry
    ("GET", "/v1/models", "the models that agents may ask for"),
    ("POST", "/mcp", "the tools of the MCP servers of hone.toml, as one server"),
    ("POST", "/hone/mcp", "Hone's own MCP server, for assistants: reading trajectories, feedback, promotion, rollback"),
    ("GET", "/metrics", "figures for Prometheus"),
    ("GET", "/healthz", "200 while the process serves"),
    ("GET", "/readyz", "200 while requests should come here; 503 if no engine is up, or nothing can be recorded"),
    ("GET", "/schema", "the OpenAPI schema of `/hone/v1`"),
)

Json = dict[str, Any]


def schema() -> Json:
    """Return the OpenAPI schema of `/hone/v1`, without serving anything."""
    given = {name: Provide(lambda: None, sync_to_thread=False) for name in ("hone", "status_service", "programs")}
    app = Litestar([*HANDLERS], dependencies=given, openapi_config=OPENAPI)
    return app.openapi_schema.to_schema()


def page() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, _MODEL_HEAD, _model_routes(), _OWN_HEAD, *_own_routes(schema())])


def _model_routes() -> str:
    recorded = [("POST", path, "recorded") for path in sorted(DIALECTS)]
    passed = [(method, path, "passed to the engine, not recorded") for path, method in PASSED.items()]
    rows = [
        (code(f"{method} {path}"), _scope(method, path), what) for method, path, what in (*recorded, *passed, *_SERVED)
    ]
    return table(["route", "scope", "what it is"], rows)


def _scope(method: str, path: str) -> str:
    if path in ("/hone/mcp", "/schema"):
        return "any key"  # the first looks at each tool's scope itself
    scope = needed_scope(method, path)
    return code(scope.value) if scope else "none"


def _own_routes(found: Json) -> Iterator[str]:
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            yield from _operation(method.upper(), path, operation, found["components"]["schemas"])


def _operation(method: str, path: str, operation: Json, schemas: Json) -> Iterator[str]:
    yield f"### {method} {path}\n"
    bare = path.replace("{", "").replace("}", "")
    yield f"{operation['description']} Scope: {_scope(method, bare)}.\n"
    queries = [p for p in operation.get("parameters", ()) if p["in"] == "query"]
    if queries:
        yield table(["query", "type"], ([code(p["name"]), _type(p["schema"], schemas)] for p in queries))
    if body := operation.get("requestBody"):
        yield from _object("body", _schema_of(body), schemas)
    good = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
    yield from _object("answer", _schema_of(good), schemas)


def _schema_of(part: Json) -> Json:
    return next(iter(part["content"].values()))["schema"] if "content" in part else {}


def _object(what: str, schema: Json, schemas: Json) -> Iterator[str]:
    """Yield a body or an answer as a table of its fields; without fields of its own, as its type."""
    named = _resolved(schema, schemas)
    fields: Mapping[str, Json] = named.get("properties", {})
    if not fields:
        yield f"The {what}: {_type(schema, schemas)}.\n"
        return
    required = named.get("required", ())
    rows = [
        [
            code(name),
            _type(field, schemas) + (", required" if what == "body" and name in required else ""),
            field.get("description", ""),
        ]
        for name, field in fields.items()
    ]
    yield table([what, "type", "what it is"], rows)


def _resolved(schema: Json, schemas: Json) -> Json:
    if "oneOf" in schema:
        return next((_resolved(one, schemas) for one in schema["oneOf"] if "$ref" in one), schema)
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _type(schema: Json, schemas: Json) -> str:
    if "oneOf" in schema:
        return " or ".join(dict.fromkeys(_type(one, schemas) for one in schema["oneOf"]))
    if "enum" in schema:
        return ", ".join(code(str(value)) for value in schema["enum"] if value != "")
    if "$ref" in schema:
        return _type(_resolved(schema, schemas), schemas)
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}), schemas)}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
