"""A recorded call as a request again: in the client's own format, as a command, and asked again with changes."""
