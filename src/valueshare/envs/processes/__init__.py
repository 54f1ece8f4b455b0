"""Environments in a separate process, which steps as soon as it has actions."""
