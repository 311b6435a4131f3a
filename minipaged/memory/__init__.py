"""Who owns which block of the KV cache. Standard library only: start reading here."""
