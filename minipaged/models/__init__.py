"""Which models there are, where their weights come from, and the one transformer that runs them."""
