"""What agents remember: rings of transitions on the training device."""
