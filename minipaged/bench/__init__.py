"""How fast the engine is, against transformers and against what its linear layers alone allow.

Each contender runs in a process of its own, one at a time, round after round, so that a machine
whose speed drifts is as unfair to one as to the other. Rates are medians over the rounds.
"""
