"""Import score files: lm-evaluation-harness, OpenCompass, leaderboards, plain CSV."""
