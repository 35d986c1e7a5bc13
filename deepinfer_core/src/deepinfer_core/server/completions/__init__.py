"""How are plain texts completed, scored, tokenised and ended over HTTP?

The protocol ``core.completions``: what needs no chat form, and what describes the service.
"""
