"""The paper's tables and figures on any study that has the parts.

One module an idea: `table`, `scaling` (figures 1 and 2), `laws` (4 and 7), `series` (5), `convergence` (6),
`diversity` (8), `weights` (9) and `ablation`. Each makes an `Outcome`: numbers, figures and a short table.
"""
