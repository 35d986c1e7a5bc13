"""Which failures can a caller see, and what does each one mean?

    DeepInferError
    |- ConfigError            a value in a file, the environment or ``--set`` cannot be used
    |  `- OtherFormat         it names files that another version of the software wrote
    |- PluginError            something about plugins or the choice of components
    |  |- NoUsableComponent   a slot cannot be filled as the configuration orders
    |  |- PluginFailed        a plugin broke while it was loaded, probed or built
    |  |- ContractMismatch    a component speaks another revision of an interface
    |  `- VersionSkew         a worker sees other distributions than its parent resolved
    |- NotSupported           a component lacks an operator, format or width that was asked for
    |- DeviceError            the device is missing, or failed
    |- WeightsError           a checkpoint is incomplete, damaged or of another architecture
    |- RequestError           one request is invalid; the others are unharmed (becomes a 4xx)
    |  |- DeadlineExceeded    one request ran out of the time that it gave itself
    |  |- UnknownModel        it names a model that is not served
    |  |- UnsupportedGrammar  its text was to have a form that is wrong, or that cannot be enforced
    |  `- NotFound            it asks for something that is not there (becomes a 404)
    |- EngineBusy             there is no room for one more request now (becomes a 429)
    `- EngineError            the engine failed; not the request's fault (becomes a 5xx)
       `- EngineUnavailable   it takes no requests now: it loads, drains or died (becomes a 503)

Every message has three parts: what was asked, what was found, what to do. ``code`` is stable and
part of the interface; ``hint`` is the third part on its own, so that a command line or a server can
show it on a line of its own.
"""

from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "ContractMismatch",
    "DeadlineExceeded",
    "DeepInferError",
    "DeviceError",
    "EngineBusy",
    "EngineError",
    "EngineUnavailable",
    "NoUsableComponent",
    "NotFound",
    "NotSupported",
    "OtherFormat",
    "PluginError",
    "PluginFailed",
    "RequestError",
    "UnknownModel",
    "UnsupportedGrammar",
    "VersionSkew",
    "WeightsError",
]


_LONGEST_NAME = 200
"""Characters of a wrong name that a message repeats."""


class DeepInferError(Exception):
    """Root of everything this project raises on purpose.

    Args:
        message: what was asked and what was found, one line.
        hint: what to do about it, one line; empty when there is nothing to advise.

    Halves of surrogate pairs, which a message may repeat from a request, are told by their escapes:
    what is no character can be neither printed nor sent.
    """

    code = "deepinfer_error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = _sendable(message), _sendable(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


def _sendable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


class ConfigError(DeepInferError):
    """A configuration value is unknown, of the wrong type or out of range."""

    code = "config_error"


class OtherFormat(ConfigError):
    """Files were written by another version, and only who writes there may renew them."""

    code = "other_format"


class PluginError(DeepInferError):
    """Something about plugins or the choice of components."""

    code = "plugin_error"


class NoUsableComponent(PluginError):
    """A slot cannot be filled the way the configuration orders."""

    code = "no_usable_component"


class PluginFailed(PluginError):
    """A plugin raised, exited or hung while it was loaded, probed or built."""

    code = "plugin_failed"


class ContractMismatch(PluginError):
    """A component speaks a revision of its interface that this core does not accept."""

    code = "contract_mismatch"


class VersionSkew(PluginError):
    """A worker's installed distributions differ from those its parent resolved."""

    code = "version_skew"


class NotSupported(DeepInferError):
    """A component lacks an operator, a number format or a width."""

    code = "not_supported"


class DeviceError(DeepInferError):
    """The device is missing, busy or failed."""

    code = "device_error"


class WeightsError(DeepInferError):
    """A checkpoint is incomplete, damaged or describes another architecture."""

    code = "weights_error"


class RequestError(DeepInferError):
    """One request is invalid; nothing else is affected."""

    code = "request_error"


class DeadlineExceeded(RequestError):
    """A request did not end within the time that it gave itself; what it drew is kept."""

    code = "deadline_exceeded"


class UnsupportedGrammar(RequestError):
    """The grammar of a request is wrong, cannot be enforced, or takes too much; says where."""

    code = "unsupported_grammar"


class NotFound(RequestError):
    """A request asks for something that is not there; ``code`` may be a narrower one."""

    code = "not_found"

    def __init__(self, message: str, *, hint: str = "", code: str = "not_found") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class UnknownModel(RequestError):
    """A request names a model that is not served.

    Attributes:
        param: the field that names it.
    """

    code = "model_not_found"
    param = "model"

    @classmethod
    def named(cls, given: object, names: Iterable[str]) -> "UnknownModel":
        """The error of a name.

        Args:
            given: what is named.
            names: what is served.
        """
        shown = repr(given)[:_LONGEST_NAME]
        return cls(f"there is no model {shown}", hint=f"this service has {', '.join(names)}")


class EngineBusy(DeepInferError):
    """As many requests as may be are in work; the same request may be taken later."""

    code = "engine_busy"


class EngineError(DeepInferError):
    """The engine failed while serving."""

    code = "engine_error"


class EngineUnavailable(EngineError):
    """The engine takes no requests now: it is being loaded or drained, or it died."""

    code = "engine_unavailable"
