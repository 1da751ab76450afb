"""A child that says which variables it was given."""

import json
import os
import sys

sys.stdin.readline()
about = f"environment: {' '.join(sorted(os.environ))}"
print(json.dumps({"shown": {"about": about}}), flush=True)
