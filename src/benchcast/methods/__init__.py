"""Every way to forecast, by name."""

from benchcast.evidence import Method
from benchcast.methods.baselines import all_token, compute, constant, label_token, source_token
from benchcast.methods.paper import paper
from benchcast.methods.ridge import ridge
from benchcast.methods.salience import salience

METHODS: dict[str, Method] = {
    "salience": salience,
    "paper": paper,
    "ridge": ridge,
    "label-token": label_token,
    "source-token": source_token,
    "all-token": all_token,
    "compute": compute,
    "constant": constant,
}
NEED_FEATURES = ("paper", "ridge")
