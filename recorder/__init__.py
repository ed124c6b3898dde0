"""The ground floor: the schema and the store, lineage, groups, and what is exported from them.

Imports no other package of Hone, and never torch, vllm or transformers.
"""
