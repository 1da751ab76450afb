"""Fails with more words than anybody reads, or with a letter that no file in UTF-8 holds."""


def step(config, inputs, out):
    raise ValueError(f"{config['words']} {chr(0xDCFF) * config['odd']}")
