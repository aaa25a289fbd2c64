"""Select the texts that a forecast depends on most, and measure the cost of using only these."""
