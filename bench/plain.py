"""The loop one would write by hand: autograd, one task after the other, on features already in memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from benchcast.losses.dataset import Dataset
from benchcast.methods.law import fit_laws
from benchcast.methods.paper import LAW_STEPS
from benchcast.splits import Fold


def plain_loop(dataset: Dataset, fold: Fold, steps: int, device: str) -> Callable[[], None]:
    """All tasks in turn: forward, law by Levenberg–Marquardt (in numpy, from where it was), backward, Adam."""
    values = dataset.features.values
    features = values if isinstance(values, torch.Tensor) else torch.from_numpy(np.array(values))
    nats, train = (torch.from_numpy(x).to(device) for x in (dataset.nats, fold.train))

    def one_task(t: int) -> None:
        head = torch.nn.Linear(features.shape[1], 1, device=device)
        optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
        accuracy, chance, law = torch.from_numpy(dataset.accuracy[t]).to(device), float(dataset.chance[t]), None
        for _ in range(steps):
            capability = nats @ torch.sigmoid(head(features))[:, 0] / dataset.characters
            found = capability.detach().double().cpu().numpy()[fold.train], dataset.accuracy[t][fold.train]
            law = fit_laws(*found, dataset.chance[t], start=law, steps=200 if law is None else LAW_STEPS)
            forecast = chance + (1 - chance) * torch.sigmoid(float(law.slope) * capability + float(law.offset))
            loss = ((forecast - accuracy)[train] ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    one_task(0)  # torch loads parts of itself at the first step
    return lambda: [one_task(t) for t in range(len(dataset.tasks))] and None
