"""The pure part of the protocol: messages, frames and identities, without I/O."""
