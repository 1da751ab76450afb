"""`python -m runner.worker.label_child`: prints what `regatta label` sends, a request per line, for
the JSON object on stdin: the `text`'s folder and the `config` of a `label` step; {"error": …} if it
cannot be."""

import json
import sys
from pathlib import Path

from engine.data.lab_texts import BadText
from runner.schema import replies
from runner.worker.selection.label import sample


def main() -> None:
    """Read from stdin, write to stdout."""
    asked = json.load(sys.stdin)
    config = asked["config"]
    try:
        for _, document in sample(Path(asked["text"]), config["documents"], config["seed"]):
            print(json.dumps(replies.request(config["ask"], document["text"])))
    except (BadText, OSError) as error:
        print(json.dumps({"error": " ".join(str(error).split())}))


if __name__ == "__main__":
    main()
