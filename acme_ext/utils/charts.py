"""Draws curves as text."""

import numpy as np

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a Braille character, by row and column


def curve(x: np.ndarray, y: np.ndarray, width: int, height: int, *, braille: bool = True) -> list[str]:
    """Returns a curve through points as lines of text, with labels at the ends of both axes.

    Args:
        x, y: `[points]`, ascending in x; finite, at least one point.
        width: total characters in a line.
        height: lines of the curve; the x axis takes one more.
        braille: draw with Braille dots, 2x4 per character, instead of asterisks.
    """
    low, high = float(y.min()), float(y.max())
    ends = [f"{high:.4g}", f"{low:.4g}"]
    margin = max(map(len, ends))
    columns, rows = (2, 4) if braille else (1, 1)
    cells = max(8, width - margin - 2)
    wide, tall = cells * columns, height * rows
    at = np.interp(np.linspace(x[0], x[-1], wide), x, y) if len(x) > 1 else np.full(wide, y[0])
    levels = np.full(wide, tall // 2) if high == low else np.rint((high - at) / (high - low) * (tall - 1)).astype(int)
    codes = np.zeros((height, cells), int)
    before = levels[0]
    for column, level in enumerate(levels):
        first, last = sorted((int(before), int(level)))
        for row in range(first, last + 1):  # steep parts are joined
            codes[row // rows, column // columns] |= _DOTS[row % rows][column % columns] if braille else 1
        before = level
    lines = []
    for i, row in enumerate(codes):
        label = ends[0] if i == 0 else ends[1] if i == height - 1 else ""
        drawn = "".join(chr(0x2800 + code) if braille else " *"[code] for code in row)
        lines.append(f"{label:>{margin}} |{drawn}".rstrip(" \u2800"))
    start, end = f"{x[0]:,.0f}", f"{x[-1]:,.0f}"
    lines.append(" " * (margin + 2) + start + end.rjust(max(1, cells - len(start))))
    return lines
