"""Which sequences run in the next step, and with how many rows?

Pure functions over snapshots: nothing here knows tensors, clocks or the model.
"""
