"""Do the numbers that the model computes stay what they were?

The quality gate: likelihoods of fixed texts, measured under several operating conditions and
compared with a file that only a deliberate refresh changes. ``conditions`` says what is run,
``texts`` on what, ``measuring`` runs it, ``baseline`` and ``baseline_file`` keep it, ``comparison``
judges, ``work_tree`` guards the refresh.
"""
