"""How do logs, progress and measurements leave the process?

``logs`` gives loggers and sets up where they write; ``progress`` is the event stream of long work;
``bars``, ``lines`` and ``reports`` turn events into a terminal's bar, into lines and into the log.
``metric`` says what a metric is and ``metric_list`` what an engine measures, ``board`` gathers it,
``registry`` shows it to scrapers and ``statistics`` in the log. Import what you need from its
module: logging costs structlog, a registry costs the Prometheus client library, progress and boards
cost nothing.
"""

__all__: list[str] = []
