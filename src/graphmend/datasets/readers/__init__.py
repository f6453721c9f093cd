"""Reading published files."""
