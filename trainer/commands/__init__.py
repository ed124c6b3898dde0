"""The commands `hone train`, `learn`, `eval`, `scenarios` and `report`: flags, signals, exit codes and output.

Refuses: the work (`trainer.runtime`, `trainer.evaluation`, `trainer.tasks`, `recorder.report`).
"""
