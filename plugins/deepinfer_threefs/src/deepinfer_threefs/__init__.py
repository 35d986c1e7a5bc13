"""How do many machines keep blocks in one folder? Segment files on 3FS or any other mount."""
