"""An inbox example: questions about a mailbox, answered with two tools. A judge trains, exact answers validate."""
