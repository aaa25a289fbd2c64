"""Score files people have → score rows: lm-evaluation-harness, OpenCompass, leaderboards, plain CSV."""
