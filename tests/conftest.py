"""Settings of every test: one thread, and the same examples on every run."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("calibrant", deadline=None, derandomize=True)
settings.load_profile("calibrant")
