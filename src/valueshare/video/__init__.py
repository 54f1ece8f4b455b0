"""Rollouts of trained agents, rendered with their action-values as videos."""
