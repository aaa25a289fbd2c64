"""What lies on disk: files that are whole or absent, the formats inside them, and studies at a URL."""
