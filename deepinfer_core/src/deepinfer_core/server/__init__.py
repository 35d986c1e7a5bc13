"""How do HTTP requests become engine calls, and what protects them from each other?

Protocols say what bodies mean; this room does the rest. It needs the extra ``serve`` and no torch.
"""
