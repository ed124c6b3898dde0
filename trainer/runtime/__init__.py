"""What runs: `hone train`, `hone learn`, and the services that a campaign finds running or starts.

Refuses: flags and exit codes (`trainer.commands`).
"""
