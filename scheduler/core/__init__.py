"""The pure scheduler: events in, actions out, no clock and no sockets."""
