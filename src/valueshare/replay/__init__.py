"""Experience replay: rings of transitions on the training device."""
