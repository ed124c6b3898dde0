"""The tasks of a campaign: scenario files, tables of prompts, tasks from traffic, and which of them a step draws."""
