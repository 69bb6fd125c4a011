"""Errors of the engine: limits and bad checkpoints."""


class CoreError(Exception):
    """Base of everything the engine raises on purpose."""


class EngineBusy(CoreError):
    """The engine can't take this request now; the caller may try again later."""


class ModelNotFound(CoreError):
    """A model or its files are missing; the message says which command fetches them."""


class BadCheckpoint(CoreError):
    """A weights file is corrupt or doesn't fit the model; the message names tensor and shape."""
