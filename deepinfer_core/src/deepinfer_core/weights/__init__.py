"""Where do the weights come from? Names, files, streaming and checks of a checkpoint.

``manifest`` says what must be there; ``index``, ``shard`` and ``coverage`` check the files
against it without reading data; ``checkpoint`` reads. ``random_checkpoint`` and ``export`` write.
"""
