"""The roof: `hone train`, `learn`, `eval`, `scenarios` and `report`: their flags, signals, exit codes, and how they print.

Refuses: the work (`trainer.programs`, `trainer.tasks`, `trainer.report`).
"""
