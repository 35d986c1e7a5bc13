"""Which drafts are made, how far are they trusted, and how many are verified? DSpark's answers."""
