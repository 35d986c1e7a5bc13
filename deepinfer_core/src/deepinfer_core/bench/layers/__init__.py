"""How fast are the model's layers at their true sizes, next to what the device could do at best?

``depth`` picks the layers, ``weights`` draws their weights on the device, ``opening`` puts model,
caches and runner together from the components that serve, ``operators`` and ``bound`` say what a
step needs at least, ``loads`` describes the steps, ``timing`` runs them, ``idle`` looks for gaps.
"""
