"""What is worth telling an operator: decisions and alarms that the ledger has, and conditions that begin.

Others import `ledger_events` (rows of the ledger, which `decisions` turns into notices) and `conditions` (alarms,
pauses and reviews as notices). Refuses: sending and its pace (`recorder.queue.notifications`). No notice has text of a
transcript, of a model or of users' code: only names, codes, figures, and sentences of this project.
"""
