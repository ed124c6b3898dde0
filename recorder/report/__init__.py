"""Reports of campaigns: for a terminal, as JSON, as one self-contained HTML file and as a page. Read-only.

Other packages import `contents` (loads a report), `terminal` and `page` (show it). Refuses: measuring and deciding;
the figures were recorded by the campaign (`trainer.campaign`), the judge and the trainer.
"""
