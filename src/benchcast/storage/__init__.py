"""Storage: files that appear complete or not at all, file formats, and studies at a URL."""
