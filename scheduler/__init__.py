"""Where and when each task runs, and what happens when two claim one key."""
