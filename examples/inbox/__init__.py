"""An inbox example: questions about a mailbox, answered with two tools; a judge trains, exact answers validate."""
