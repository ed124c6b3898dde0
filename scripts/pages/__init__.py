"""Pages that are made from the code, and the site of all pages.

    python -m scripts.pages            which pages differ from what the code says now
    python -m scripts.pages --write    write those anew

`settings`, `commands` and `api` make a page each; `site` is what mkdocs is told beside mkdocs.yml.
"""
