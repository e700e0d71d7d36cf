"""What each state owns: taken by its ``enter``, given back by its ``leave``."""
