"""What is kept of finished blocks beyond one engine's memory, for how long, and is it whole?"""
