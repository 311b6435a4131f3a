"""Experiments without a model: lengths instead of tokens, on the real scheduler and memory."""
