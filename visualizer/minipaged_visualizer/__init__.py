"""Views of a trace. They read events and nothing else: no engine, no torch, no model."""
