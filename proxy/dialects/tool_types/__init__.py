"""Tool types beyond the plain function: how each format treats them.

Owns: the table (`table`), the schemas of tools that clients declare without one (`schemas`), and free-form tools as
functions (`custom`). Refuses: items of Responses and blocks of Messages, which are in their formats' folders.
"""
