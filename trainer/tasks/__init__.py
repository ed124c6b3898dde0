"""Tasks of a campaign: scenario files, tables of prompts, tasks from traffic, their parts, and drawing for a step.

Others import `chances`, `scenarios`, `selection` and `traffic`. Refuses: running attempts, and the store except for
`traffic`.
"""
