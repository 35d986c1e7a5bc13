"""How do prompts become completions: requests, the step loop and the Python API?

The scheduler decides, the runner computes, the rooms between them pass frozen values.
"""
