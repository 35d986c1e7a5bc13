"""What does a JSON Schema allow, as a grammar that allows nothing else?"""
