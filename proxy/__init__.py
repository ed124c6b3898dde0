"""The product's face: the HTTP server, wire formats, attribution, the engine, versions in service, the command line."""
