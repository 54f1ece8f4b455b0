"""Environments in a process of their own, which goes on by itself as soon as it has actions."""
