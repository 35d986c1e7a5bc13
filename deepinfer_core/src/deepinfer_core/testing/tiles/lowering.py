"""Does the compiler of the tile language accept a kernel, and what text does it make of it?

Lowering needs no device: text for sm_90a and sm_100a, and Ascend C. It checks types, layouts and
what the target supports, and finds what the interpreter cannot see; it is no proof of the result.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepinfer_core.testing.tiles.faults import TileFault
from deepinfer_core.testing.tiles.kept import KeptResults

__all__ = ["ARCHITECTURES", "Lowered", "LoweringFailed", "lower"]

ARCHITECTURES: dict[str, dict[str, str]] = {
    "sm_90a": {"kind": "cuda", "arch": "sm_90a"},
    "sm_100a": {"kind": "cuda", "arch": "sm_100a"},
    "ascend": {"kind": "ascend"},
}
"""What can be lowered to, and the target that the compiler is asked for."""

LAUNCH = re.compile(r'call_packed\("\w+", .*, (\d+)\)')


class LoweringFailed(TileFault):
    """The compiler refuses the kernel for one architecture."""

    code = "lowering_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A kernel as the compiler's text.

    Attributes:
        arch: one of ``ARCHITECTURES``.
        source: CUDA C++ or Ascend C.
        dynamic_shared_bytes: shared memory that each block asks for at launch; 0 for Ascend.
    """

    arch: str
    source: str
    dynamic_shared_bytes: int


def lower(
    func: Any,
    arch: str,
    *,
    pass_configs: Mapping[str, Any] | None = None,
    kept: KeptResults | None = None,
) -> Lowered:
    """Lower a PrimFunc for one architecture.

    Args:
        func: straight from its builder.
        arch: one of ``ARCHITECTURES``.
        pass_configs: the compiler's switches, as the kernel is compiled with.
        kept: where results of unchanged kernels are found again; None lowers every time.

    Raises:
        LoweringFailed: the compiler says no; its first words are in the message.
    """
    import tilelang

    configs = dict(pass_configs or {})
    switches = sorted((str(name), str(value)) for name, value in configs.items())
    identity = (arch, str(tilelang.__version__), str(switches), func.script(show_meta=True))
    found = kept.find("lowered", *identity) if kept is not None else None
    if found is None:
        found = lower_now(func, arch, configs)
        if kept is not None:
            kept.keep("lowered", *identity, value=found)
    return Lowered(arch=arch, **found)


def lower_now(func: Any, arch: str, configs: dict[str, Any]) -> dict[str, Any]:
    """Run the compiler.

    The target is entered, not only passed: passes look it up in the context.
    """
    import tilelang
    from tilelang import tvm

    if arch not in ARCHITECTURES:
        raise LoweringFailed(f"no architecture {arch!r}", hint=f"one of {sorted(ARCHITECTURES)}")
    try:
        target = tvm.target.Target(ARCHITECTURES[arch])
        with tvm.transform.PassContext(opt_level=3, config=configs), target:
            artifact = tilelang.lower(func, target=target)
    except Exception as error:  # the compiler raises many kinds, from several languages
        name = str(func.attrs["global_symbol"])
        words = " ".join(str(error).split())
        raise LoweringFailed(
            f"{name} cannot be lowered for {arch}: {type(error).__name__}: {words[-600:]}"
        ) from error
    source = str(artifact.kernel_source)
    dynamic = 0
    if "extern __shared__" in source:
        sizes = LAUNCH.findall(artifact.host_mod.script())
        dynamic = max((int(size) for size in sizes), default=0)
    return {"source": source, "dynamic_shared_bytes": dynamic}
