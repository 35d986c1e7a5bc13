"""How does a block outlive the loss of some of the stores that hold pieces of it?"""
