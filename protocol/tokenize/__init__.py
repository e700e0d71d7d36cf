"""Which token a task or a value has: equal for equal meaning, nothing else."""
