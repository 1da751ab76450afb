"""Steps that train, continue, import and export models, and the models that they load."""
