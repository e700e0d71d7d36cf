"""What travels between client, scheduler and workers, and how."""
