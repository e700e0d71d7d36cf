"""What scheduler and worker processes share: how they start, run and end."""
