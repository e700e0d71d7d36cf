"""How frames get from one process to another: addresses and transports."""
