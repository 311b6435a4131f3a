"""The figures of the PagedAttention paper, rebuilt by simulation; a file for each."""
