"""Which texts may a constrained request produce? Grammars over token masks, two engines."""
