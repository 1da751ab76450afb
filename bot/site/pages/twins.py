"""The JSON of the leaderboards."""

from typing import Any

from bot.site.facts.lab import Lab
from bot.site.facts.leaderboard import Row
from runner.schema.metrics import BPB


def leaderboard(facts: Lab) -> dict[str, Any]:
    """Every leaderboard, the current executions, and open questions."""
    return {
        "groups": [
            {
                "source": group.data.source,
                "tokenizer": group.data.tokenizer,
                "validation_sha256": group.data.validation_sha256,
                "eval_tokens": group.data.eval_tokens,
                "rows": [row_of(row) for row in group.rows],
            }
            for group in facts.groups
            if group.metric == BPB and group.data
        ],
        "by_metric": [
            {
                "metric": group.metric,
                "measured_on": group.identity,
                "rows": [row_of(row) for row in group.rows],
            }
            for group in facts.groups
            if group.metric != BPB
        ],
        "running": [
            {"execution": e.execution.id, "title": e.plan.title, "state": e.state}
            for e in facts.running
        ],
        "wishlist": [
            {"repository": s.repository, "issue": s.issue, "title": s.title, "seal": s.seal}
            for s in facts.wishlist
        ],
    }


def row_of(row: Row) -> dict[str, Any]:
    entry, origin = row.entry, row.entry.execution.origin
    return {
        "rank": row.rank,
        "rank_shared": row.tied > 1,
        "execution": entry.execution.id,
        "page": f"executions/{entry.execution.id}/index.html",
        "title": entry.plan.title,
        "arm": row.arm,
        "author": entry.author,
        "reproduced": {"same": row.again.same, "differ": row.again.differ},
        row.metric: row.mean,
        "interval": row.interval,
        "spread": row.summary.spread,
        "seeds": row.summary.n,
        "seeds_planned": row.summary.of,
        "scores": {
            metric: {str(seed): of.get((row.arm, seed)) for seed in entry.plan.seeds}
            for metric, of in entry.scores.items()
        },
        "figures": {str(seed): entry.figures.get((row.arm, seed)) for seed in entry.plan.seeds},
        "parameters": row.parameters,
        "tokens": row.planned.tokens,
        "own_code": row.planned.own,
        "model_flops": row.model_flops,
        "hardware_flops": vars(row.spent) if row.spent else None,
        "execution_seconds": entry.result.seconds if entry.result else None,
        "at": entry.execution.at.isoformat(),
        "repository": origin.repository_name or None if origin else None,
        "pull": origin.pull if origin else None,
        "commit": origin.commit if origin else None,
        "fingerprint": entry.plan.fingerprint,
        "verdicts": [
            {
                "prediction": verdict.prediction.sentence,
                "confidence": verdict.prediction.confidence,
                "outcome": verdict.outcome,
                "why": verdict.why,
            }
            for verdict in row.verdicts
        ],
    }
