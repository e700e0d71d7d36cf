"""How values become headers and buffers, and buffers become values again."""
