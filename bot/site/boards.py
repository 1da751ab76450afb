"""The pages of the leaderboards."""

from bot.site.board import Group, Row


def whisker(row: Row, group: Group) -> str:
    """Where a row's mean and spread lie on its group's common scale, as CSS."""
    low, high = group.ends
    width = (high - low) or 1.0
    begin, end = ((end - low) / width * 100 for end in row.band)
    middle = (row.mean - low) / width * 100
    return f"--a:{begin:.1f}%;--b:{end - begin:.1f}%;--m:{middle:.1f}%"
