"""What a user's program calls: submitting work and waiting for results."""
