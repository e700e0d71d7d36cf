"""How dask collections find the client and become raddle graphs."""
