"""How are matrix products run on an NVIDIA GPU?"""
