"""Which checks does the repository have, and what does each one need?

Every check is one session with its own environment, so that a dependency nobody declared shows.
``nox`` runs the default list; ``nox -s lint types core`` is the short loop; ``nox -l`` lists all.
``nox -j 3`` runs three sessions side by side: while one installs or waits, the others compute.
"""

import ctypes
import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nox

ROOT = Path(__file__).parent
GROUPS = nox.project.load_toml(ROOT / "pyproject.toml")
DISTRIBUTIONS = [
    "deepinfer_core", "deepinfer_nvidia", "plugins/deepinfer_tiny", "plugins/deepinfer_dspark",
    "plugins/deepinfer_grammar", "plugins/deepinfer_threefs", "plugins/deepinfer_cluster",
    "deepinfer_recipe_bridge", ".",
]  # fmt: skip
TYPED_SOURCES = [*[f"{name}/src" for name in DISTRIBUTIONS[:-1]], "benchmarks"]
TYPED_TESTS = [f"tests/core/{room}" for room in ("channel", "config", "plugin", "telemetry")]
TORCH = "torch==2.13.0"
"""A CPU build exists for this version; a range would admit CUDA builds of several gigabytes."""

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "virtualenv"
nox.options.error_on_external_run = True
nox.options.allow_parallel = True
nox.options.sessions = [
    "core", "backend", "lint", "imports", "types", "e2e", "bridge", "service", "packaging",
    "grammar", "plugins", "oracle", "tiles", "outside",
]  # fmt: skip
"""The longest come first, so that side by side the last minutes do not hang on one of them."""


def install(session: nox.Session, *arguments: str, **options: Any) -> None:
    """Install with pip, which compiles no module: Python compiles those that a session imports."""
    session.install("--no-compile", *arguments, **options)


def group(session: nox.Session, *names: str) -> None:
    """Install development dependencies of the root ``pyproject.toml``."""
    install(session, *nox.project.dependency_groups(GROUPS, *names))


def shared(session: nox.Session, *packages: str) -> Path:
    """Folder with the one copy of packages, and of what they need, that all sessions share.

    ``site-packages`` tells hypothesis, which reads a project's modules for constants, to skip them.
    """
    name = "+".join(packages)
    folder = Path(session.virtualenv.location).parent / ".shared" / "site-packages" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        if not folder.exists():
            unfinished = folder.with_name(f"{name}.unfinished")
            install(session, "--target", str(unfinished), "--upgrade", *packages)
            unfinished.rename(folder)
    return folder


def torch(session: nox.Session) -> None:
    """Let the session see the shared torch.

    A copy of its own takes each of them a gigabyte and half a minute. The folder is on the path
    behind the session's own packages, so pip adds beside it what a session wants otherwise.
    """
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = session.run("python", "-c", code, silent=True)
    lines = f"{shared(session, TORCH)}\n"
    Path(str(packages).strip(), "torch.pth").write_text(lines, encoding="utf-8")


def linked(session: nox.Session, *distributions: str, options: Sequence[str] = ()) -> None:
    """Install distributions of this checkout whose sources stay where they are.

    pip alone sees what builds them, in a shared folder: it would otherwise fetch the builder anew
    for each of them. It takes what lies there for installed, so a group that brings ``packaging``
    and ``pluggy`` to the session itself, such as ``test``, comes first.
    """
    builder = shared(session, *nox.project.dependency_groups(GROUPS, "build"))
    parts = [part for name in distributions for part in ("-e", str(ROOT / name))]
    path = {"PYTHONPATH": str(builder)}
    install(session, "--no-build-isolation", *options, *parts, env=path)


def editable(session: nox.Session, *distributions: str) -> None:
    """Link distributions of this checkout on top of the pinned torch."""
    torch(session)
    linked(session, *distributions)


def pytest(session: nox.Session, *arguments: str) -> None:
    """Run pytest with one thread a process, and a process a core, or one beside other sessions.

    One process collects and imports once, and other sessions leave it no core to share.
    """
    processes = "0" if session.parallel else "2"
    session.run(
        "pytest", "-q", "-n", processes, *arguments, *session.posargs, env={"OMP_NUM_THREADS": "1"}
    )


def wheelhouse(session: nox.Session) -> Path:
    """Build a wheel of each distribution and return the folder that holds them."""
    house = session.cache_dir / "wheelhouse"
    group(session, "build")
    for distribution in DISTRIBUTIONS:
        session.run(
            "python", "-m", "build", "--wheel", "--no-isolation",
            "--outdir", str(house), str(ROOT / distribution), silent=True,
        )  # fmt: skip
    return house


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: format and rules."""
    group(session, "lint")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict, on every source folder, the benchmarks and the tests of some rooms."""
    group(session, "types", "test")
    editable(
        session,
        "deepinfer_core[bench,chat,disk,erasure,serve]",
        "plugins/deepinfer_tiny",
        "plugins/deepinfer_dspark",
    )
    # What else these want is skipped by mypy, installed or not.
    linked(
        session, "deepinfer_nvidia", "plugins/deepinfer_grammar", "plugins/deepinfer_threefs",
        "plugins/deepinfer_cluster", "deepinfer_recipe_bridge", options=["--no-deps"],
    )  # fmt: skip
    session.run("mypy", *TYPED_SOURCES, *TYPED_TESTS)


@nox.session
def imports(session: nox.Session) -> None:
    """import-linter: which room may import which."""
    group(session, "imports")
    linked(
        session, "deepinfer_core", "deepinfer_nvidia", "plugins/deepinfer_dspark",
        "plugins/deepinfer_grammar", "plugins/deepinfer_threefs", "plugins/deepinfer_cluster",
        "deepinfer_recipe_bridge", options=["--no-deps"],
    )  # fmt: skip
    session.run("lint-imports")


@nox.session
def core(session: nox.Session) -> None:
    """Unit tests and contract suites of the core, alone; the files of backends are only read."""
    group(session, "test")
    editable(session, "deepinfer_core[bench,chat,disk,erasure,serve,vision]")
    pytest(session, "tests/core", "tests/contract", "tests/mirror")


@nox.session
def tiles(session: nox.Session) -> None:
    """The tile interpreter, with the tile language's own frontend and no device."""
    group(session, "test")
    editable(session, "deepinfer_core[tiles]")
    pytest(session, "tests/tiles")


@nox.session
@nox.parametrize("name", ["nvidia"])
def backend(session: nox.Session, name: str) -> None:
    """A backend with the core, on the CPU: registration, probes, kernels interpreted."""
    group(session, "test")
    editable(
        session, "deepinfer_core[chat]", f"deepinfer_{name}", "plugins/deepinfer_tiny",
        "plugins/deepinfer_dspark",
    )  # fmt: skip
    pytest(session, f"tests/{name}")


@nox.session(venv_params=["--system-site-packages"])
@nox.parametrize("name", ["nvidia"])
def device(session: nox.Session, name: str) -> None:
    """What needs the device itself, with the torch of the machine that has one."""
    group(session, "test")
    linked(session, "deepinfer_core", f"deepinfer_{name}")
    session.run("pytest", "-q", f"tests/{name}/device", *session.posargs)


@nox.session(venv_params=["--system-site-packages"])
@nox.parametrize("name", ["nvidia"])
def sanitize(session: nox.Session, name: str) -> None:
    """Memcheck and racecheck of every kernel's small cases, where device and toolkit are."""
    group(session, "test")
    linked(session, "deepinfer_core", f"deepinfer_{name}")
    session.run(
        "python", "-m", "deepinfer_core.testing.sanitize",
        f"deepinfer_{name}.kernels.catalogue:catalogue", *session.posargs,
    )  # fmt: skip


@nox.session
@nox.parametrize("plugin", ["tiny", "dspark", "threefs", "cluster"])
def plugins(session: nox.Session, plugin: str) -> None:
    """Tests of one plugin distribution with the core alone."""
    group(session, "test")
    editable(session, "deepinfer_core[chat]", f"plugins/deepinfer_{plugin}")
    pytest(session, f"tests/plugins/{plugin}")


@nox.session
def grammar(session: nox.Session) -> None:
    """Tests of structured output, also beside drafts: both engines, judges of what they produce.

    xgrammar asks for triton, which is large and which it does not import on a CPU; so it is
    installed without its dependencies, and beside those that it imports.
    """
    group(session, "test", "grammar")
    editable(
        session, "deepinfer_core[chat]", "plugins/deepinfer_tiny", "plugins/deepinfer_dspark",
        "plugins/deepinfer_grammar",
    )  # fmt: skip
    install(session, "--no-deps", "xgrammar==0.2.9")
    install(session, "apache-tvm-ffi>=0.1.11", "llguidance==1.9.1", "transformers>=4.38")
    pytest(session, "tests/plugins/grammar")


@nox.session
def bridge(session: nox.Session) -> None:
    """The chat protocols: against deepseek-recipe itself, grammars and the official clients."""
    group(session, "test", "bridge")
    editable(
        session, "deepinfer_core[chat,serve]", "plugins/deepinfer_tiny",
        "plugins/deepinfer_grammar[llguidance]", "deepinfer_recipe_bridge",
    )  # fmt: skip
    pytest(session, "tests/bridge")


@nox.session
def service(session: nox.Session) -> None:
    """The server: calls, limits, connections and whatever a socket can send; no model is needed."""
    group(session, "test")
    editable(
        session, "deepinfer_core[chat,serve]", "plugins/deepinfer_tiny", "deepinfer_recipe_bridge"
    )
    pytest(session, "tests/server")


@nox.session
def schemas(session: nox.Session) -> None:
    """Calls made from the server's own description; ``-- --hypothesis-profile full``: 20,000."""
    group(session, "test", "schemas")
    editable(
        session, "deepinfer_core[chat,serve]", "plugins/deepinfer_tiny", "deepinfer_recipe_bridge"
    )
    session.run(
        "pytest", "-q", "--log-cli-level", "INFO", "tests/schemas", *session.posargs,
        env={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@nox.session
def page(session: nox.Session) -> None:
    """The page in a headless Chromium; each test is skipped where there is none."""
    group(session, "test")
    editable(session, "deepinfer_core[chat,serve]", "deepinfer_recipe_bridge")
    pytest(session, "tests/page", "-n", "0")


@nox.session
def packaging(session: nox.Session) -> None:
    """Wheels only, away from the checkout: the plugin list is the proof; then hostile plugins."""
    house = wheelhouse(session)
    group(session, "test")
    torch(session)
    install(
        session,
        *nox.project.load_toml(ROOT / "deepinfer_core/pyproject.toml")["project"]["dependencies"],
    )
    install(session, "--no-index", "--find-links", str(house), "deepinfer[tiny]")
    with session.chdir(session.create_tmp()):
        session.run("deepinfer", "plugins", "--json")
        session.run(
            "deepinfer", "generate", "Once upon a time", "--max-tokens", "8", "--temperature", "0"
        )
    pytest(session, "tests/packaging")


@nox.session
def outside(session: nox.Session) -> None:
    """Build and use the example plugin as a stranger would."""
    group(session, "test", "build")
    editable(session, "deepinfer_core", "plugins/deepinfer_tiny")
    install(session, "--no-build-isolation", str(ROOT / "examples/third_party_plugin"))
    pytest(session, "examples/third_party_plugin/tests", "-n", "0")


@nox.session
def e2e(session: nox.Session) -> None:
    """Requests through configuration, engine and model, with the shipped checkpoint."""
    group(session, "test")
    editable(
        session, "deepinfer_core[chat,disk,erasure]", "plugins/deepinfer_tiny",
        "plugins/deepinfer_dspark",
    )  # fmt: skip
    pytest(session, "tests/e2e")


@nox.session
def oracle(session: nox.Session) -> None:
    """Parity with independent public implementations, in an environment of their own.

    Their pins stand in ``requirements/oracle.txt``, without dependencies, which would pull a
    CUDA build of torch; tile_kernels declares Python 3.12, its torch references run on 3.11.
    """
    group(session, "test")
    editable(session, "deepinfer_core[vision]")
    pins = str(ROOT / "requirements/oracle.txt")
    install(session, "--no-deps", "--ignore-requires-python", "-r", pins)
    pytest(session, "tests/oracle")


@nox.session
def gluster(session: nox.Session) -> None:
    """The store in shared folders on GlusterFS, ten bricks and two, some of which are killed.

    Not in the default list: it needs root, for namespaces of its own, and Debian's packages.
    """
    for command, package in (
        ("glusterd", "glusterfs-server"),
        ("mount.glusterfs", "glusterfs-client"),
        ("unshare", "util-linux"),
        ("ip", "iproute2"),
    ):
        if shutil.which(command) is None:
            session.error(f"needs {command}, found none: apt-get install {package}")
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        session.error("needs root and /dev/fuse, to mount a volume in a namespace of its own")
    group(session, "test")
    editable(session, "deepinfer_core[chat]", "plugins/deepinfer_threefs")
    session.run(
        "unshare", "--net", "--mount", "--propagation", "private",
        "python", "-m", "pytest", "-q", "-rs", "--log-cli-level", "INFO", "tests/gluster",
        *session.posargs, external=True,
    )  # fmt: skip


@nox.session
def clients(session: nox.Session) -> None:
    """What users point at a service, against one: SDKs, lm-eval, GuideLLM, LangChain, compliance.

    Not in the default list: its packages take a minute and half a gigabyte. One that cannot be
    installed skips its tests; torch is named so that none of them brings another build.
    """
    group(session, "test")
    editable(session, "deepinfer_core[serve]", "plugins/deepinfer_tiny", "deepinfer_recipe_bridge")
    pins = (ROOT / "requirements/clients.txt").read_text(encoding="utf-8").splitlines()
    for pin in [line for line in pins if line and not line.startswith("#")]:
        command = ("python", "-m", "pip", "install", "--quiet", pin, TORCH)
        session.run(*command, success_codes=[0, 1])
    pytest(session, "tests/clients", "-n", "0", "-rs")


@nox.session
def mooncake(session: nox.Session) -> None:
    """The store in a Mooncake pool, with a master and nodes of its own that are killed.

    Not in the default list: it wants libraries of the system (``docs/mooncake.md``), and minutes.
    """
    for library, package in (
        ("libibverbs.so.1", "libibverbs1"),
        ("librdmacm.so.1", "librdmacm1"),
    ):
        try:
            ctypes.CDLL(library)
        except OSError:
            session.error(f"needs {library}, found none: apt-get install {package}")
    group(session, "test")
    editable(session, "deepinfer_core", "plugins/deepinfer_cluster[mooncake]")
    pytest(session, "tests/mooncake", "tests/plugins/cluster", "-n", "0", "-rs")


@nox.session
def minimums(session: nox.Session) -> None:
    """The core's tests with the lowest direct dependencies that it allows."""
    project = nox.project.load_toml(ROOT / "deepinfer_core/pyproject.toml")["project"]
    extras = project["optional-dependencies"]
    names = ("serve", "bench", "disk", "erasure", "vision")
    wanted = [*project["dependencies"], *[one for name in names for one in extras[name]]]
    group(session, "test")
    torch(session)
    install(session, *{d.replace(">=", "==") for d in wanted if not d.startswith("torch")})
    linked(session, "deepinfer_core", options=["--no-deps"])
    pytest(session, "tests/core", "tests/contract", "tests/mirror")


@nox.session
def dev(session: nox.Session) -> None:
    """One environment with everything editable; prints where it is."""
    group(session, "test", "lint", "types", "imports", "build")
    editable(session, "deepinfer_core[bench,chat,vision]", *DISTRIBUTIONS[1:-1])
    session.log("activate with: source %s/bin/activate", session.virtualenv.location)
