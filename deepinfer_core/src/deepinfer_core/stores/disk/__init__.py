"""How are blocks kept on a disk, for this process and for others?"""
