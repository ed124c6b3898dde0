"""The record: the store and its schema, captured calls, groups, the work queue, search, views and maintenance.

Every other package imports this one. It imports no other package of Hone, and never torch, vllm or transformers.
"""
