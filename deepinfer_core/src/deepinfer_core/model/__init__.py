"""How does DeepSeek-V4.1-Flash compute? The network, written against component interfaces only.

``builder.build_model`` makes a ``backbone.TextModel`` from a checkpoint and the chosen components;
``step.StepInputs`` is what one step feeds it and ``caches.allocate_caches`` what it keeps.
"""
