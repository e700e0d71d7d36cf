"""What one change of a task's state does, one module per state entered."""
