"""How are the row-wise operators launched on an NVIDIA GPU?"""
