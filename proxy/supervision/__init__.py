"""Put together and kept running: the app of its parts, the socket, `hone serve`, `hone up`, children watched.

Refuses: flags (`proxy.commands`).
"""
