"""Settings that hold for every test: one thread, no network, the same examples each time."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# Read when torch, triton, tokenizers and huggingface_hub are imported: nothing here imports them.
for name, value in {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRITON_INTERPRET": "1",  # kernels run as numpy; what needs a compiler starts its own process
}.items():
    os.environ[name] = value

# A shell starts what runs in its background deaf to Ctrl-C; tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# `ci` gives the same examples on every machine; `HYPOTHESIS_PROFILE=search` looks for new ones.
settings.register_profile("ci", derandomize=True, database=None, deadline=None)
settings.register_profile("search", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
