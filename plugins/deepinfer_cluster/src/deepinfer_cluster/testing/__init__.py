"""What stands in for a pool in tests?"""
