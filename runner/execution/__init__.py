"""One execution from claim to result: rules, effects, Ray."""
