"""How does DSpark draft? With the draft block of the checkpoint, and with confidences made true.

The block runs over the engine's caches, in which every forward pass has left what it needs, so that
there are drafts behind the first token of an answer already. The engine draws them and keeps their
laws. What is added here is how far they are to be trusted: the logits of the confidences divided by
the temperature of each draft, fitted for the checkpoint if a table says so.

Shapes: Q sequences, n drafts.
"""
