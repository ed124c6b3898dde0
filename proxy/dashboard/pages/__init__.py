"""The handlers of the pages: each reads its address, loads one view of the store and renders one template.

Refuses: HTML (`templates/`), queries (`recorder.views`), and what all pages share (`proxy.dashboard`).
"""
