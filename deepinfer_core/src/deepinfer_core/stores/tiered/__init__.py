"""How do stores stand in front of each other, the fast and small before the slow and large?"""
