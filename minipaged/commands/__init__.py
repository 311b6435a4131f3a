"""What the `minipaged` command does, one file for each of its words."""
