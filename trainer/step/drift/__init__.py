"""How far each version drifts: exact divergences on an alias's drift set, from the base and from earlier versions.

`set_reader` reads the set and the versions from the store, `measure` computes. Refuses: who is in the set
(`recorder.queue.training.drift_set`), and when learning stops for it (`trainer.step.runner`).
"""
