"""What do plugin authors and our own tests share: contract suites, fakes and small checkpoints?"""
