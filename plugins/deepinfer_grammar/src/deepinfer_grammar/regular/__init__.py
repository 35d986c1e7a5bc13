"""Regular languages over Unicode characters: syntax, automata and their algebra."""
