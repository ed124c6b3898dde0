"""A second back end: steps that a training service computes, through the Tinker API (`trainer.backend = "tinker"`).

Owns: the client, what is refused because the API cannot express it, and the price in tokens. `remote_core` is what
others import. Refuses: the order of a step (`trainer.step.alias_trainer`), and losses (`trainer.policy.losses`), which
are the local trainer's.
"""
