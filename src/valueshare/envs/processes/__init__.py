"""Environments in a process of their own, which steps as soon as it has actions."""
