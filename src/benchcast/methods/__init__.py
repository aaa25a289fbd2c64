"""Every way to forecast, by name: ours, the paper's, those of other papers, and the baselines."""

from benchcast.evidence import Method
from benchcast.methods import baselines, ridge, salience
from benchcast.methods.algorithm2 import paper
from benchcast.methods.correlations import perplexity_correlations
from benchcast.methods.logistic import logistic4
from benchcast.methods.observational import observational
from benchcast.methods.pls import pls
from benchcast.methods.twostep import two_step

METHODS: dict[str, Method] = {
    "salience": salience.salience,
    "paper": paper.paper,
    "ridge": ridge.ridge,
    "pls": pls,
    "perplexity-correlations": perplexity_correlations,
    "logistic-4": logistic4,
    "two-step": two_step,
    "observational": observational,
    "label-token": baselines.label_token,
    "source-token": baselines.source_token,
    "all-token": baselines.all_token,
    "compute": baselines.compute,
    "constant": baselines.constant,
}
NEED_FEATURES = ("paper", "ridge")
TOGETHER = ("paper", "ridge")  # all folds share their passes over the features, and their rounding
PEERS = ("pls", "perplexity-correlations", "logistic-4", "two-step", "observational")
BASELINES = ("label-token", "source-token", "all-token", "compute", "constant")
