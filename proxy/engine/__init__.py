"""Who answers: vLLM's command line, requests to engines, one replica as it is steered, other providers' models.

Refuses: which version a call gets (`proxy.versions`) and the order of a call (`proxy.serving`).
"""
