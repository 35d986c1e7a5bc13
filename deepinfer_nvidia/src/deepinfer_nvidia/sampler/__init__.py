"""How are tokens drawn on an NVIDIA GPU?"""
