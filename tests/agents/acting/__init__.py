"""An engine that acts: it plays the helpdesk's game with whatever tools an agent offers.

Owns: what it says next (`play`), how that is said in the agent's own form (`tongues`), arguments after a JSON schema
(`filling`), and the program (`engine`). Refuses: sockets and vLLM's shapes, which are `tests.proxy.fake_engine`'s.
Others import `engine` alone.
"""
