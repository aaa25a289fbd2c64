"""Every way to forecast, by name."""

from benchcast.evidence import Method
from benchcast.methods import baselines, paper, ridge, salience

METHODS: dict[str, Method] = {
    "salience": salience.salience,
    "paper": paper.paper,
    "ridge": ridge.ridge,
    "label-token": baselines.label_token,
    "source-token": baselines.source_token,
    "all-token": baselines.all_token,
    "compute": baselines.compute,
    "constant": baselines.constant,
}
NEED_FEATURES = ("paper", "ridge")
