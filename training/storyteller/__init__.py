"""The storyteller: a grammar of stories, and a small model that is trained on nothing else."""
