"""What user code finds in a worker process: dask computes on the cluster there.

Importing this module installs it, for as long as the process lives. It must cost a
worker's start next to nothing: the client itself is imported when a task first
computes something.
"""

from raddle.client.dask import handle

OWNER = "worker process"

handle.install(OWNER)
