"""The web pages at `/hone`: what Hone recorded, scored and trained, and the forms that change it.

Owns: templates, stylesheets and scripts, forms with their tokens, sign-in, the list of pages (`routes`) and the
redirects of old addresses. A page is a handler in `pages/`, a template, and a line in `routes.HANDLERS`. Refuses:
queries (`recorder.views`, which `/hone/v1` returns as JSON) and scopes (`proxy.admission`). Others import `routes`,
`renderer` and `chart_drawer`.
"""
