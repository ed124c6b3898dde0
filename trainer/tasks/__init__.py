"""The tasks of a campaign: scenario files, tables of prompts, tasks from traffic, their parts, what a step draws."""
