"""Pages in the browser, at `/hone`: what was recorded, judged and trained, and forms by which a person steers it.

Owns: templates, the stylesheet and the small scripts, forms with their tokens, signing in, and the table of pages
(`routes`). A page is a file in `pages/`, a template, and a line in that table. Refuses: queries (`recorder`'s views,
which `/hone/v1` gives as JSON), and who may do what (`proxy.admission`).
"""
