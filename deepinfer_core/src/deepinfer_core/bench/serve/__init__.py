"""How does a service answer over HTTP when so many users ask, or so many requests come a second?

``cli.bench_serve`` is the door to this room. A walk: ``prompt_folder`` and ``random_text`` make
``scripts``, ``bodies`` turns their turns into requests, ``connection`` and ``client`` send them,
``events`` reads what streams back, and an ``exchange`` is all that one request showed. ``loads``
decides who asks when, ``headroom`` watches the generator itself, ``sweep`` runs one load after the
other, ``report`` turns them into figures and ``pareto`` into a plot.

The service may be anybody's: nothing here knows more of it than the published OpenAI interface.
"""
