"""What does a store of blocks do when its bytes, its medium or its process come to harm?"""
