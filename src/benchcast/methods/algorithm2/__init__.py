"""Algorithm 2 of the paper: gradient descent on a scoring head, its matrix products, optimizers and CUDA replay."""
