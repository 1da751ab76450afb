"""The loop, one step, optimizers, checkpoints, evaluation, exchange with Hugging Face."""
