"""How do rows reach their experts on one NVIDIA GPU?"""
