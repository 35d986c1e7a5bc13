"""How are the operators of attention and of the caches launched on an NVIDIA GPU?"""
