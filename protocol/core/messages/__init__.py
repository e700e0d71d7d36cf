"""Which messages exist, one small class each, by the pair that speaks them."""
