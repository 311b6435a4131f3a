"""Every error that a user can cause; each message is one line with the numbers or the place."""


class MinipagedError(Exception):
    """Base of all errors that are not a bug of ours. The terminal prints its message alone."""


class OutOfBlocksError(MinipagedError):
    """An operation needs more blocks than are free. Nothing was changed."""


class RequestRefusedError(MinipagedError, ValueError):
    """A request that can never run here: too long, too many samples, or empty."""


class ConfigError(MinipagedError, ValueError):
    """A setting that makes no sense, alone or together with another."""


class ModelError(MinipagedError):
    """A model that can't be found, fetched or read: the message says which file and why."""


class TraceError(MinipagedError):
    """A trace that can't be read, or whose events contradict each other, and at which line."""


class WorkloadError(MinipagedError):
    """A file of requests that can't be read: the message says at which line and why."""
