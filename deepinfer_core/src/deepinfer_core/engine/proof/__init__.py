"""Does every picked component keep its promises for the loaded model?

Asked at load, before the first request, and only when ``strict`` in the settings asks for it. Each
operator runs at the model's own widths, formats and weights; ``proving`` is the way in.
"""
