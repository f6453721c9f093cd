"""The demo: handwritten digits, mended on a laptop in seconds."""
