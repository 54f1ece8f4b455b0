"""Plans, run folders, and the launchers that run a plan into a folder or at a URL."""
