"""Who answers requests over HTTP, and what was loaded for it?

Standard output gets one summary when requests are taken, with the address in its last line.
Progress, problems and a line for each call go to standard error. The exit status is 0 after SIGTERM
or SIGINT, whatever was ended with it; 1 or 2 if there is no engine, or no engine any more.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deepinfer_core.cli.memory_check import memory_table
from deepinfer_core.cli.output import complain, print_table
from deepinfer_core.cli.parser import add_settings_arguments, settings_from
from deepinfer_core.errors import ConfigError

if TYPE_CHECKING:
    from deepinfer_core.config import LoadedSettings
    from deepinfer_core.config.settings import TelemetrySettings
    from deepinfer_core.interfaces.async_engine import EngineFacts
    from deepinfer_core.server.launcher import Service
    from deepinfer_core.server.protocols import ServedProtocol
    from deepinfer_core.telemetry.progress import ProgressConsumer

__all__ = ["add_arguments", "log_settings", "run", "served_settings", "stopping", "summary"]

_GRAMMAR_KEY = "components.grammar.use"
_LEVEL_KEY = "telemetry.level"
_LIBRARIES = frozenset({"httptools", "msgspec", "starlette", "uvicorn", "uvloop"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--model", metavar="DIR", help="the same as --set model.path=DIR")
    parser.add_argument("--host", metavar="NAME", help="the same as --set server.host=NAME")
    parser.add_argument("--port", metavar="N", help="the same as --set server.port=N")
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serve; 0 after a signal to stop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopped_early)
    options = {"model.path": args.model, "server.host": args.host, "server.port": args.port}
    named = [f"{key}={value}" for key, value in options.items() if value is not None]
    args.overrides = [*args.overrides, *named]
    loaded = served_settings(args)
    try:
        import uvloop
    except ImportError as error:
        raise _not_installed(error) from error
    import asyncio

    from deepinfer_core.telemetry.logs import configure_logging

    configure_logging(log_settings(loaded))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(loaded))
    return 0


def served_settings(args: argparse.Namespace) -> LoadedSettings:
    """The settings; where they say nothing of grammars, with those that work here."""
    from deepinfer_core.config.resolution import host_candidates, load_policy
    from deepinfer_core.plugin.loading import load_plugins

    loaded = settings_from(args)
    if loaded.origins[_GRAMMAR_KEY].kind != "default":
        return loaded
    offers = load_plugins(load_policy(loaded.settings)).offers
    if not any(one.usable for one in host_candidates(loaded.settings, offers, ("grammar",))):
        return loaded
    args.overrides = [*args.overrides, f"{_GRAMMAR_KEY}=auto"]
    return settings_from(args)


def log_settings(loaded: LoadedSettings) -> TelemetrySettings:
    """What this process logs: where the settings say nothing, also a line for each call.

    The engine's process goes by the settings alone.
    """
    telemetry = loaded.settings.telemetry
    if loaded.origins[_LEVEL_KEY].kind != "default":
        return telemetry
    return telemetry.model_copy(update={"level": "info"})


async def _serve(loaded: LoadedSettings) -> None:
    try:
        from deepinfer_core.server.launcher import run_service
        from deepinfer_core.server.protocols import serve_protocols
    except ImportError as error:
        raise _not_installed(error) from error
    from deepinfer_core.server.listener import address_of

    protocols = serve_protocols(loaded)
    service = _service(loaded, protocols)
    address = address_of(service.listener)
    await run_service(service, lambda: summary(service.process.facts, protocols, address), stopping)


def _service(loaded: LoadedSettings, protocols: Sequence[ServedProtocol]) -> Service:
    """Everything that is made before the engine is loaded; the engine begins to load."""
    from deepinfer_core.config.checkpoints import served_names
    from deepinfer_core.config.server_keys import read_keys
    from deepinfer_core.server.app import App, AppParts
    from deepinfer_core.server.engine_process import EngineProcess
    from deepinfer_core.server.launcher import Service
    from deepinfer_core.server.listener import open_listener
    from deepinfer_core.server.page.routes import page_routes

    settings, server = loaded.settings, loaded.settings.server
    keys = read_keys(server)
    listener = open_listener(server, has_keys=bool(keys))
    process = EngineProcess(loaded, progress=_shown_progress(loaded))
    parts = AppParts(
        engine=process,
        settings=server,
        protocols=protocols,
        model_names=served_names(settings),
        keys=keys,
        running=settings.engine.max_num_seqs,
        max_queued=settings.engine.max_queued,
        progress=process.progress,
        pages=page_routes(),
    )
    app = App(parts)
    return Service(app=app, engine=app.engine, process=process, settings=server, listener=listener)


def _shown_progress(loaded: LoadedSettings) -> ProgressConsumer | None:
    from deepinfer_core.telemetry.reports import shown_progress

    if sys.stderr is None:
        return None
    return shown_progress(loaded.settings.telemetry, sys.stderr, has_lines=True)


def summary(facts: EngineFacts, protocols: Sequence[ServedProtocol], address: str) -> None:
    """Print what was picked, what fits, and where it is served."""
    print_table([("slot", "component"), *facts.components.items()])
    report = facts.report
    print()
    print_table(memory_table(report["memory"], report["device_bytes"]))
    print()
    print_table(
        [
            ("model", facts.model),
            ("longest request", f"{facts.max_model_len:,} tokens"),
            ("at once", f"{report['max_num_seqs']:,} requests"),
            ("cache", f"{report['cache_tokens']:,} tokens"),
            ("grammars", ", ".join(facts.grammar_kinds) or "none"),
            ("store", _store(report.get("kv_store"))),
            ("protocols", ", ".join(one.name for one in protocols)),
        ]
    )
    print(f"\nserving at {address}", flush=True)


def _store(report: Mapping[str, Any] | None) -> str:
    """The store, and what it is given."""
    if report is None:
        return "none"
    return f"{report['component']}: {', '.join(report['block_bytes'])}"


def _stopped_early(number: int, frame: object) -> None:
    """End before there is anything to wait for; later the launcher takes the signals.

    Nothing is raised: a plugin may be loading, and would be blamed for it. An engine's process that
    has begun ends by itself when this one is gone.
    """
    os._exit(0)


def stopping(in_work: int, seconds: float) -> None:
    """Say on standard error what a service that stops waits for, and until when."""
    if in_work == 0:
        complain("no request is in work", "", kind="stopping")
        return
    requests = "1 request is" if in_work == 1 else f"{in_work} requests are"
    end = time.strftime("%H:%M:%S", time.localtime(time.time() + seconds))
    complain(
        f"{requests} in work and may end until {end}, within {seconds:g} s; "
        "a second signal ends the wait",
        "",
        kind="stopping",
    )


def _not_installed(error: ImportError) -> Exception:
    if (error.name or "").partition(".")[0] not in _LIBRARIES:
        return error
    return ConfigError(
        f"serving needs {error.name}, which is not installed",
        hint='pip install -e "./deepinfer_core[serve]"',
    )
