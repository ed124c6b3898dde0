"""The proxy's app: all routes and parts, behind the admission middleware.

Owns: which part serves which route, and the order in which the parts start and stop. Refuses: what a part does.

The model routes are raw ASGI apps mounted in Litestar, so that they notice a client's disconnect even without
streaming. Hone's own routes are Litestar handlers; their OpenAPI schema is at /schema, as JSON only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from litestar import Litestar, Request, Response, asgi
from litestar.di import Provide
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive as LitestarReceive
from litestar.types import Scope as LitestarScope
from litestar.types import Send as LitestarSend

from proxy import metrics
from proxy.admission.auth import Guard, is_loopback
from proxy.admission.cors import ANY
from proxy.admission.middleware import AdmissionMiddleware, strip_address
from proxy.admission.pages import HEADERS as PAGE_HEADERS
from proxy.admission.pages import HTML
from proxy.admission.replies import MCP_PATH, error_headers, render_error, send_error, translate_error
from proxy.api.actions import HoneActions
from proxy.api.mcp.mount import McpMount
from proxy.api.routes import HANDLERS, MAX_BODY_BYTES, OPENAPI, check_request, methods_at
from proxy.api.status import Setting, StatusService
from proxy.dashboard.chart_drawer import ChartDrawer
from proxy.dashboard.renderer import PageContext
from proxy.dashboard.report_cache import ReportCache
from proxy.dashboard.routes import page_routes
from proxy.dialects import DIALECTS
from proxy.dialects.chat import ChatDialect
from proxy.dialects.completions import CompletionsDialect
from proxy.dialects.responses.dialect import ResponsesDialect
from proxy.engine.client import Client
from proxy.engine.context_lengths import ContextLengths
from proxy.engine.providers import Providers
from proxy.errors import CallerError, ConfigError, UnknownObject
from proxy.http.asgi import App, Receive, Scope, Send, respond
from proxy.http.connections import ConnectionLimits, ConnectionTable
from proxy.http.shutdown import Shutdown
from proxy.metrics import Metrics, merge_metrics
from proxy.notifications.target import Target
from proxy.programs.service import ProgramService
from proxy.recorded_requests.repeater import CallRepeater
from proxy.responses_api import routes
from proxy.responses_api.calls import BackgroundResponses, ResponseCalls
from proxy.responses_api.routes import ResponseRoutes
from proxy.responses_api.stored_responses import StoredResponses
from proxy.serving.body_reading import dialect_rules
from proxy.serving.calls import CallHandler
from proxy.serving.continuity import Continuity
from proxy.serving.judge_calls import PATH as JUDGES_PATH
from proxy.serving.judge_calls import JudgeCalls
from proxy.serving.model_requests import ModelRequester
from proxy.serving.passthrough import GENERATING, PASSED, ModelRoutes
from proxy.serving.prompt_lists import PromptLists
from proxy.serving.repeat_calls import RepeatCalls
from proxy.serving.running_call import ServingParts
from proxy.settings.display import display_value
from proxy.settings.hone import HoneSettings
from proxy.settings.mcp import McpServerSettings
from proxy.settings.sections import ProxySettings, ShadowSettings, Share
from proxy.shadow.answers import ShadowAnswerer
from proxy.shadow.shadower import LOOK_BACK_S, Shadower
from proxy.store_metrics import StoreMetrics
from proxy.supervision.liveness import HealthRoutes
from proxy.versions.routing import ServiceRouter
from proxy.worker_ipc.peers import WorkerPeers
from recorder.capture.recorder import Recorder
from recorder.registry.keys import has_keys
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import RecorderSettings
from recorder.store.database import Project, Store
from recorder.views.status.stages import LoopSettings

if TYPE_CHECKING:
    from proxy.mcp_gateway.gateway import Gateway


@dataclass(frozen=True, slots=True)
class AppParts:
    """The parts of the app. The app starts and stops all of them except the store, which is open already."""

    project: Project
    settings: ProxySettings
    recorder_settings: RecorderSettings
    recorder: Recorder
    versions: ServiceRouter
    background: Sequence[
        Callable[[], AbstractAsyncContextManager[Any]]
    ] = ()  # context managers that are open while the app runs
    mcp: Mapping[str, McpServerSettings] = field(default_factory=dict)
    fallbacks: Mapping[str, str] = field(default_factory=dict)  # alias → its fallback in [[proxy.models]]
    shadows: Mapping[str, ShadowSettings] = field(default_factory=dict)  # alias → its shadow settings
    reasoning_parser: str | None = None  # the engine's
    peers: WorkerPeers | None = None  # the other workers; None without workers
    pages_store: Store | None = None  # separate connections for the pages; None: the store's
    shown_settings: Callable[[], Sequence[Setting]] = tuple  # now, for the page Settings
    follower: SettingsFollower | None = None  # the current settings; None: those that no file sets
    has_aliases: bool = False  # declared in settings: the app is not ready without an engine
    share: Share = "split"  # how engine and trainer use one GPU
    notified: Target | None = None  # who receives notifications
    programs: ProgramService = field(default_factory=lambda: ProgramService(None))  # of the `hone up` around it


class HoneApp(AdmissionMiddleware):
    """The whole app as one ASGI callable; serve it inside `async with app.running()`."""

    def __init__(self, deps: AppParts) -> None:
        self._deps = deps
        follower = deps.follower or SettingsFollower(deps.project, HoneSettings())
        self._client = Client(
            connect_timeout_s=deps.settings.connect_timeout_s,
            read_timeout_s=deps.settings.first_byte_timeout_s,
            is_paused=None if deps.share == "split" else deps.versions.is_asleep,
        )
        self._providers = Providers(deps.settings.models, deps.fallbacks)
        self.metrics = Metrics(deps.recorder)
        self.background = BackgroundResponses()
        self.stop = Shutdown()
        parts = ServingParts(
            project_id=deps.project.id,
            settings=deps.settings,
            recorder_settings=deps.recorder_settings,
            recorder=deps.recorder,
            versions=deps.versions,
            client=self._client,
            providers=self._providers,
            metrics=self.metrics,
            stop=self.stop,
            continuity=_continuity(deps, self._client),
            overrides=follower.overrides,
        )
        self._gateway = _gateway(deps, parts) if deps.mcp else None
        repeater = _repeater(deps, parts)
        hone = HoneActions(deps.project, deps.recorder, deps.versions, deps.notified, follower, repeater)
        self._steering = McpMount(hone)
        self._shadower = _shadower(deps, parts) if deps.shadows else None
        self._drawer = ChartDrawer()
        calls = {path: _calls(path, parts) for path in DIALECTS if path != routes.PATH}
        routed = _routed(
            deps, parts, hone, follower, self._drawer, self.background, self._at_mcp(parts), self._steering, calls
        )
        guard = Guard(
            deps.project,
            own_groups=deps.settings.key_groups == "own",
            patience_s=deps.recorder_settings.commit_timeout_s,
        )
        super().__init__(routed, guard, deps.settings, (*DIALECTS, *PASSED, *GENERATING, "/v1/models"), calls)
        self.connections = ConnectionTable(_limits(deps.settings), _render)

    def _at_mcp(self, parts: ServingParts) -> App:
        gateway, peers = self._gateway, self._deps.peers
        if gateway is None or peers is None:
            return gateway or _no_gateway
        from proxy.worker_ipc.forwarding import SharedSessions

        return SharedSessions(gateway, peers, parts.stop, parts.settings.max_body_bytes)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the parts, and stop them in reverse order. Raises ConfigError, StoreError."""
        deps = self._deps
        if not is_loopback(deps.settings.host) and not await has_keys(deps.project):
            raise ConfigError(
                f"Hone would listen on {deps.settings.host} for everybody, without keys: create a key first "
                "(`hone keys create`), or set `host` in [proxy] to 127.0.0.1."
            )
        if ANY in deps.settings.cors_origins and not await has_keys(deps.project):
            raise ConfigError(
                "`cors_origins` in [proxy] allows the pages of any origin, on a proxy without keys: create a key first "
                "(`hone keys create`), or name the origins."
            )
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._client.close)
            await self._providers.start()
            stack.push_async_callback(self._providers.stop)
            await deps.recorder.start()
            stack.push_async_callback(deps.recorder.stop)
            await deps.versions.start()
            stack.push_async_callback(deps.versions.stop)
            stack.push_async_callback(self.background.stop)
            stack.push_async_callback(self._drawer.close)
            if deps.peers is not None:
                await stack.enter_async_context(deps.peers.running())
            if self._gateway is not None:
                await stack.enter_async_context(self._gateway.running())
            await stack.enter_async_context(self._steering.running())
            if self._shadower is not None:
                await stack.enter_async_context(self._shadower.running())
            for part in deps.background:
                await stack.enter_async_context(part())
            yield


def _limits(settings: ProxySettings) -> ConnectionLimits:
    return ConnectionLimits(
        head_bytes=settings.max_head_bytes,
        head_timeout_s=settings.head_timeout_s,
        body_timeout_s=settings.body_timeout_s,
        pipelined=settings.max_pipelined,
        connections=settings.max_connections,
    )


def _render(path: str, error: CallerError) -> tuple[bytes, bytes]:
    """An error of HTTP itself, for a caller of a path that was not checked."""
    return render_error(strip_address(path.encode("latin-1")), error)


def create_app(deps: AppParts) -> HoneApp:
    """The app for these parts."""
    return HoneApp(deps)


def _routed(
    deps: AppParts,
    parts: ServingParts,
    hone: HoneActions,
    follower: SettingsFollower,
    drawer: ChartDrawer,
    background: BackgroundResponses,
    gateway: App,
    steering: App,
    calls: Mapping[str, App],
) -> App:
    health = HealthRoutes(deps.versions, deps.recorder, has_aliases=deps.has_aliases)
    models = ModelRoutes(deps.settings, deps.versions, parts.client, parts.stop, ContextLengths(parts.client))
    pages_project = Project(deps.pages_store, deps.project.id) if deps.pages_store else deps.project
    status_service = StatusService(
        pages_project,
        lambda: LoopSettings.current(follower, recorder=deps.recorder_settings),
        deps.shown_settings,
        _servers(deps.mcp),
    )
    litestar = Litestar(
        [
            *(_mounted(path, app) for path, app in calls.items()),
            _mounted(routes.PATH, _responses(deps, parts, background), whole_tree=True),
            *(_mounted(path, models.passed(path)) for path in (*PASSED, *GENERATING) if path not in DIALECTS),
            _mounted(JUDGES_PATH, JudgeCalls(parts)),
            _mounted("/v1/models", models.models, whole_tree=True),
            _mounted(MCP_PATH, gateway),
            _mounted("/metrics", _metrics_route(parts.metrics, _store_metrics(deps, follower), deps.peers)),
            *(_mounted(path, health.alive) for path in ("/healthz", "/health")),
            _mounted("/readyz", health.ready),
            _mounted("/hone/mcp", steering),
            *HANDLERS,
            *(
                [page_routes(_page_context(deps, hone, pages_project, status_service, drawer), parts.stop)]
                if deps.settings.pages
                else []
            ),
        ],
        dependencies={
            "hone": Provide(lambda: hone, sync_to_thread=False),
            "status_service": Provide(lambda: status_service, sync_to_thread=False),
            "programs": Provide(lambda: deps.programs, sync_to_thread=False),
        },
        before_request=check_request,
        exception_handlers={Exception: _error_response},
        openapi_config=OPENAPI,
        logging_config=None,
        request_max_body_size=min(MAX_BODY_BYTES, deps.settings.max_body_bytes),
    )
    return cast(App, litestar)  # its ASGI types are equivalent, with other names


def _page_context(
    deps: AppParts, hone: HoneActions, project: Project, status_service: StatusService, drawer: ChartDrawer
) -> PageContext:
    return PageContext(hone, project, status_service, drawer, deps.programs, ReportCache(project))


def _servers(mcp: Mapping[str, McpServerSettings]) -> dict[str, str]:
    """The URL or command of each MCP server, with secrets masked."""
    return {
        name: str(display_value("url", one.url))
        if one.url
        else " ".join(display_value("command", [one.command, *one.args]))
        for name, one in mcp.items()
    }


def _continuity(deps: AppParts, client: Client) -> Continuity | None:
    on = deps.settings.token_continuity == "on"  # noqa: S105 - no password
    return Continuity(deps.project.id, deps.recorder, client, deps.reasoning_parser) if on else None


def _calls(path: str, parts: ServingParts) -> App:
    dialect = DIALECTS[path]
    calls = CallHandler(dialect, parts, ModelRequester(dialect.engine_path, parts))
    return PromptLists(calls, path, parts.settings) if path == CompletionsDialect.path else calls


def _repeater(deps: AppParts, parts: ServingParts) -> CallRepeater:
    formats = (DIALECTS[ChatDialect.path], DIALECTS[CompletionsDialect.path])
    apps: dict[str, App] = {
        one.path: RepeatCalls(one, parts, ModelRequester(one.engine_path, parts)) for one in formats
    }
    return CallRepeater(deps.project, apps, dialect_rules(deps.settings))


def _responses(deps: AppParts, parts: ServingParts, background: BackgroundResponses) -> App:
    history = StoredResponses(deps.project, parts.recorder)
    calls = ResponseCalls(ResponsesDialect(), history, background, parts)
    ends = (background.cancel,) if deps.peers is None else (background.cancel, deps.peers.cancel)
    return ResponseRoutes(calls, history, ends)


def _shadower(deps: AppParts, parts: ServingParts) -> Shadower:
    look_back_s = deps.recorder_settings.idle_timeout_s + LOOK_BACK_S
    answering = ShadowAnswerer(deps.project.id, parts.client, deps.recorder, deps.versions, parts.metrics)
    return Shadower(deps.project, deps.shadows, deps.versions, answering, parts.metrics, look_back_s)


def _gateway(deps: AppParts, parts: ServingParts) -> Gateway:
    # importing the SDK takes half a second, which only users of MCP servers need
    from proxy.mcp_gateway.gateway import Gateway
    from proxy.mcp_gateway.tool_calls import ToolCaller
    from proxy.mcp_gateway.write_protection import WriteProtection

    limit_s = deps.recorder_settings.commit_timeout_s
    return Gateway(
        deps.mcp,
        prefix=deps.settings.mcp_prefix == "server",
        calling=ToolCaller(deps.project.id, deps.recorder, parts.metrics, limit_s),
        writes=WriteProtection(deps.project, limit_s),
        metrics=parts.metrics,
        max_body_bytes=deps.settings.max_body_bytes,
        idle_s=deps.recorder_settings.idle_timeout_s,
    )


async def _no_gateway(scope: Scope, receive: Receive, send: Send) -> None:
    error = UnknownObject(
        "no MCP server is configured: add [mcp.NAME] with a `url` or a `command` to hone.toml, or start with "
        "`hone serve --mcp NAME=URL`."
    )
    await send_error(send, scope["hone.path"], error)


def _mounted(path: str, app: App, *, whole_tree: bool = False) -> ASGIRouteHandler:
    """Mount `app` at exactly `path`, or at all paths below it."""

    async def handler(scope: LitestarScope, receive: LitestarReceive, send: LitestarSend) -> None:
        await app(cast(Scope, scope), cast(Receive, receive), cast(Send, send))

    return asgi(path, is_mount=whole_tree, copy_scope=False)(handler)


def _store_metrics(deps: AppParts, follower: SettingsFollower) -> StoreMetrics:
    return StoreMetrics(deps.project, deps.recorder_settings, lambda: follower.learn)


def _metrics_route(figures: Metrics, of_store: StoreMetrics, peers: WorkerPeers | None) -> App:
    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        own = figures.text()
        if peers is not None:
            own = merge_metrics({peers.own: own, **await peers.figures()})
        await respond(send, 200, own + await of_store.text(), metrics.CONTENT_TYPE)

    return route


def _error_response(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """An error as a response, in the format of its path."""
    path = cast(Scope, request.scope)["hone.path"]
    translated = translate_error(error, request.scope)
    body, media_type = render_error(path, translated)
    headers = {name.decode(): value.decode() for name, value in error_headers(translated)}
    if media_type == HTML:
        headers |= {name.decode(): value.decode() for name, value in PAGE_HEADERS}
    if translated.status == 405:
        headers["allow"] = ", ".join(methods_at(path))
    return Response(body, status_code=translated.status, media_type=media_type.decode(), headers=headers)
