"""What runs on a paged KV cache: one file a kernel, and `reference`, their twins in plain torch."""
