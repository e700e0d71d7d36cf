"""What tests share: builders, recorders and small clusters with real parts."""
