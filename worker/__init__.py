"""How a worker process runs tasks, holds their data and fetches inputs."""
