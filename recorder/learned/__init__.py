"""What learning came to: lines of descent, versions, steps, campaigns with their events and measures, lessons.

Refuses: what goes on now (`recorder.telling`). Others import `lines`, `whole`, `steps`, `campaign_events`,
`campaign_history`, `campaign_measures`, `campaign_progress`. Only reads.
"""
