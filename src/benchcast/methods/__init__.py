"""All forecasting methods by name: ours, the paper's, those of other papers, and baselines."""

from collections.abc import Callable

from benchcast.methods import baselines, paper, ridge
from benchcast.methods.logistic4 import logistic4
from benchcast.methods.observational import observational
from benchcast.methods.paper import DescentSettings
from benchcast.methods.perplexity_correlations import perplexity_correlations
from benchcast.methods.pls import pls
from benchcast.methods.rbridge import rbridge
from benchcast.methods.stack import Pool, fit_salience, fit_stack, salience, stack
from benchcast.methods.stack.settings import StackSettings
from benchcast.methods.task_fit import Method, TaskFit
from benchcast.methods.two_step import two_step

METHODS: dict[str, Method] = {
    "stack": stack,
    "salience": salience,
    "paper": paper.paper,
    "ridge": ridge.ridge,
    "pls": pls,
    "perplexity-correlations": perplexity_correlations,
    "logistic-4": logistic4,
    "two-step": two_step,
    "observational": observational,
    "rbridge": rbridge,
    "label-token": baselines.label_token,
    "source-token": baselines.source_token,
    "all-token": baselines.all_token,
    "compute": baselines.compute,
    "constant": baselines.constant,
}
SETTINGS: dict[str, type[DescentSettings]] = {"paper": DescentSettings}  # of the methods that have any
# Methods that average the same candidates: together they are fitted in hardly more time than one of them.
ONE_POOL: dict[str, Callable[[Pool, StackSettings], TaskFit]] = {"stack": fit_stack, "salience": fit_salience}
NEED_FEATURES = ("paper", "ridge")
TOGETHER = ("paper", "ridge")  # all folds share their passes over the features
BASELINES = ("label-token", "source-token", "all-token", "compute", "constant")
ABOUT = {  # what each method does, in one line
    "stack": "non-negative and signed weights, averaged by their errors on left-out families and stronger models",
    "salience": "learned token weights, never negative; several forms averaged by their error on left-out families",
    "paper": "Algorithm 2 of Ge et al. 2025: token weights from a scorer's hidden states, by gradient descent",
    "ridge": "signed token weights from a scorer's hidden states, in closed form",
    "pls": "partial least squares from the loss of each text",
    "perplexity-correlations": "each text weighted by how its loss orders the models (Thrush et al. 2024)",
    "logistic-4": "mean loss of all tokens, the task's texts or their answers; sigmoid with free floor and ceiling",
    "two-step": "parameters and training tokens → loss on the answers → accuracy (Bhagia et al. 2024)",
    "observational": "scores on the other benchmarks (Ruan et al. 2024); reads no losses",
    "rbridge": "loss on the answers, each token weighted by a strong model's probability (Koh et al. 2025)",
    "label-token": "mean loss on the answers of the task's own texts",
    "source-token": "mean loss on the task's own texts",
    "all-token": "mean loss on all texts",
    "compute": "training FLOPs; reads no losses",
    "constant": "the mean score of the training models",
}
