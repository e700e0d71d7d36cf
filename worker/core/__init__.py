"""The pure worker: which attempt runs next and which data is held."""
