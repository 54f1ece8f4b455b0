"""Experience replay: rings of transitions on the training device, the host or the disk."""
