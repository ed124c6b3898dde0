"""Learning from what users write next: `make live TRAFFIC=followups` and `TRAFFIC=corrections`.

Owns: users who write back, the scripted reader of what they write, the arms that are compared, and their results.
README.md in the folder above describes the parts.
"""
