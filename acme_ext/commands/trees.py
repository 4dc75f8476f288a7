"""Draws a search tree as SVG."""

import html
from collections.abc import Callable

import numpy as np

_WIDTH, _HEIGHT, _GAP = 84, 36, 12  # of a node, and between nodes, in pixels
_ROW = 2 * _HEIGHT  # from a node to its children


def svg(nodes: np.ndarray, name_of: Callable[[int], str], most: int = 200) -> str:
    """Returns a drawing of a search tree, as SVG.

    Each node shows the move that leads to it, its visits, and the move's value for the player who made it. Children are
    ordered by visits, the most visited on the left.

    Args:
        nodes: `[N, 4]`, see `ops.search.nodes_of`.
        name_of: returns the name of an action.
        most: maximum number of nodes to draw; the most visited are drawn.
    """
    kept = np.argsort(-nodes[:, 2], kind="stable")[:most]  # a parent has more visits than its children
    children: dict[int, list[int]] = {int(node): [] for node in kept if nodes[node, 2] > 0}
    for node in children:
        if nodes[node, 0] >= 0:
            children[int(nodes[node, 0])].append(node)
    places: dict[int, tuple[float, int]] = {}  # each node's center and depth

    def place(node: int, left: float, depth: int) -> float:
        """Places a node and its descendants; returns their right end."""
        right = left
        for child in children[node]:
            right = place(child, right, depth + 1)
        right = max(right, left + _WIDTH + _GAP)
        places[node] = (left + right) / 2, depth
        return right

    width = place(0, 0.0, 0)
    height = _ROW * (1 + max(depth for _, depth in places.values()))
    lines, boxes = [], []
    for node, (x, depth) in places.items():
        y = depth * _ROW + _GAP
        if (parent := int(nodes[node, 0])) >= 0:
            above, of_above = places[parent]
            start = of_above * _ROW + _GAP + _HEIGHT
            lines.append(f'<line x1="{above:.0f}" y1="{start}" x2="{x:.0f}" y2="{y}"/>')
        move = "the position" if parent < 0 else html.escape(name_of(int(nodes[node, 1])))
        share = nodes[node, 2] / nodes[0, 2]
        boxes.append(
            f'<rect x="{x - _WIDTH / 2:.0f}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" '
            f'fill="hsl(210, 80%, {95 - 45 * share:.0f}%)"/>'
            f'<text x="{x:.0f}" y="{y + 15}" font-weight="bold">{move}</text>'
            f'<text x="{x:.0f}" y="{y + 29}">{nodes[node, 2]:.0f} &#215; {nodes[node, 3]:+.2f}</text>'
        )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
            f'viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="12" text-anchor="middle">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<g stroke="#888">{"".join(lines)}</g>',
            f'<g stroke-width="0">{"".join(boxes)}</g>',
            "</svg>",
            "",
        ]
    )
