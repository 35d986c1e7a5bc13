"""Which kernels will an engine call, and are they compiled before somebody waits for them?

Components with tile kernels compile each at its first call, one after the other. ``preparing`` is
the way in: a rehearsal on a device that is not there tells which kernels an engine of some settings
needs, and what the cache folder lacks is compiled in parallel, when an engine starts or ahead of
time on a machine without a device.
"""
