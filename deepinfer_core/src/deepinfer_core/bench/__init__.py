"""How fast does the engine run a known load, and how fast could this machine run it at most?

``cli.bench`` is the door to this room. A walk: ``lengths`` and ``workload`` make the load,
``running`` runs it and notes when each token came, ``throughput`` and ``latency`` turn such runs
into figures. ``model_cost`` counts what the load asks of any engine, ``machine_rates`` measures
what the machine can do, ``bounds`` divides the one by the other. ``figures`` and ``stamp`` say how
a figure is written down.
"""
