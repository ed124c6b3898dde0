"""A campaign's report: what it came to, for a terminal, for scripts, and as one HTML file that needs nothing else.

Others import `gathering.gather`, and `text` and `page`, which show what it gives. Only reads, and decides nothing: what
is told was written down by the campaign (`trainer.campaign`) and by those who judged and trained.
"""
