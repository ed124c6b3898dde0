"""The roof: `hone train`, `learn`, `eval`, `scenarios`, `report`: their flags, signals, exit codes, how they print.

Refuses: the work (`trainer.runtime`, `trainer.evaluation`, `trainer.tasks`, `trainer.report`).
"""
