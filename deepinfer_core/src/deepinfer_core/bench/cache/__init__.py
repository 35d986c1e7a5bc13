"""How fast is a store of blocks, next to a bare memory map and a bare LMDB of the same run?"""
