"""How do logs and progress leave the process?

``logs`` gives loggers and sets up where they write; ``progress`` is the event stream of long work;
``bars`` and ``reports`` turn events into a terminal's bar and into log lines. Import what you need
from its module: logging costs structlog, progress costs nothing.
"""

__all__: list[str] = []
