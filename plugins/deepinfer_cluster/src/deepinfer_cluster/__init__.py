"""How are blocks kept in the memory of other machines?"""
