"""Sign-in with a key, and sign-out.

Owns: these pages and the cookie. Refuses: what the key allows afterwards (`proxy.admission`).
"""

from __future__ import annotations

from litestar import Response, get, post
from litestar.params import FromQuery

from proxy.admission.pages import COOKIE, sign_in_token
from proxy.api.route_parts import AnyRequest
from proxy.dashboard import forms
from proxy.dashboard.renderer import ForPages, render_page
from recorder.registry import keys
from recorder.registry.keys import Scope


@get("/sign-in", include_in_schema=False)
async def sign_in_page(request: AnyRequest, onward: FromQuery[str] = "/hone/") -> Response[str]:
    """The form for a key. `onward`: the page to open afterwards."""
    return render_page(request, "sign_in.html", onward=forms.local_path(onward), wrong=None)


@post("/sign-in", include_in_schema=False)
async def sign_in(context: ForPages, request: AnyRequest) -> Response[str] | Response[None]:
    """Check a key, and set a cookie for it. Raises TooMany after too many unknown keys."""
    form = await forms.read_fields(request)
    onward = forms.local_path(forms.field_text(form, "onward"))
    sender: str = request.scope["hone.sender"]  # type: ignore[typeddict-item]  # put there by the middleware
    context.login_throttle.require_few(sender)
    key = await keys.verify_secret(context.hone.project.store, forms.field_text(form, "key"))
    wrong = _wrong(key, context.project.id)
    if key is None or wrong is not None:
        context.login_throttle.failed(sender)
        return render_page(request, "sign_in.html", status=403, onward=onward, wrong=wrong)
    token = await keys.sign_in(context.hone.project.store, key)
    answer = forms.back_to(onward)
    answer.set_cookie(forms.set_cookie(request, COOKIE, token, int(keys.LASTS_S)))
    return answer


def _wrong(key: keys.KeyView | None, project_id: str) -> str | None:
    if key is None or key.project_id != project_id:
        return "This key is unknown, revoked or expired."
    if key.trajectory_id is not None:
        return "This key is for one trajectory: it cannot open pages."
    return None if key.may(Scope.READ) else "This key does not have the scope 'read'."


@post("/sign-out", include_in_schema=False)
async def sign_out(context: ForPages, request: AnyRequest) -> Response[None]:
    """End the sign-in and delete the cookie."""
    token = sign_in_token(request.scope["hone.headers"])  # type: ignore[typeddict-item]  # put there by the gate
    if token is not None:
        await keys.sign_out(context.hone.project.store, token)
    answer = forms.back_to("/hone/sign-in")
    answer.delete_cookie(COOKIE, path="/hone")
    return answer
