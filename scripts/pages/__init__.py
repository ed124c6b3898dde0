"""Pages that are made from the code, and the site of all pages.

    python -m scripts.pages            list the pages that differ from the code
    python -m scripts.pages --write    update those pages

`settings`, `commands`, `api` and others make a page each; `site` extends mkdocs.yml.
"""
