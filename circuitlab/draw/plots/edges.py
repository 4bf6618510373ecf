# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""A graph: edges in a few curves (one per kind and strength, so that thousands stay smooth), nodes as small labels on top."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.colours import hues_rgb
from circuitlab.draw.look.cross import CROSS, paint_cross
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import GRID, Theme
from circuitlab.draw.plots.items import Curve
from circuitlab.draw.plots.plot import LEAST_PICTURE, Overlay, Range
from circuitlab.draw.plots.points import nearest_towards
from circuitlab.draw.plots.xy import XYPlot, span
from circuitlab.draw.pointing.gestures import Id, number
from circuitlab.figures.contracts.hues import composition_rgb
from circuitlab.figures.marks import Edges

STRENGTHS = 8
REACH = 6.0
KINDS = "QKV"
DASHES: dict[int, list[float]] = {1: [6.0, 3.0], 2: [1.5, 2.5]}
WIDE_UP_TO = 400  # edges: above it every line is one pixel wide, which Qt draws much faster
DASHED_UP_TO = 1500
DOT = 4.5
FEW = 8  # nodes of a row that are named on paper however narrow it is
BADGE = 16.0  # px above a node
BRACKET = 3.0  # px below nodes
TOUCH = 2.0  # px by which two labels may meet
HALO, PALE = 6.0, 0.2  # px on either side of a chosen or hovered edge, and how opaque: a faint edge must be seen on it


class EdgesMark(XYPlot):
    """Realises `Edges`."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        none = np.zeros(0, dtype=np.int64)
        self.mark: Edges = Edges("", np.zeros((0, 2)), (), none, np.zeros((0, 2), np.int64), np.zeros(0), none)
        self._on_paper = False
        self._curves: list[Curve] = []
        self._rgb = np.zeros((0, 3), dtype=np.uint8)
        self._node_boxes: list[QRectF] = []
        self._named = np.zeros(0, dtype=bool)  # [node] has its label, not a dot
        self._boxes_key: object = None
        self._boxes_arrays: tuple[object, object] = (None, None)  # held: another array cannot then have the id of one of these
        self._halos = Overlay(self, self._draw_halos, z=-1.0)  # below all edges, which keep kind and strength when chosen
        self._over = Overlay(self, self._draw_over)
        plot = self.plot_item
        plot.hideAxis("left")
        plot.hideAxis("bottom")

    def show_mark(self, mark: Edges) -> None:
        """Redraw the edges where they are new; a selection repaints the overlay alone."""
        old, self.mark, self.mark_name = self.mark, mark, mark.name
        self._ready = True
        if any(getattr(mark, k) is not getattr(old, k) for k in ("xy", "ends", "weights", "kinds")):
            self._fill()
            self.settle(mark.xy.shape == old.xy.shape)
            self.forget_hover()
        if mark.hues is not old.hues:
            self._rgb = hues_rgb(np.asarray(mark.hues), self.theme)
        self._name_kinds()
        self._update_overlays()

    def _name_kinds(self) -> None:
        kinds = np.unique(self.mark.kinds).tolist()
        entries = [(KINDS[k], composition_rgb(k, self.theme.dark)) for k in kinds]
        dashes = {i: DASHES[k] for i, k in enumerate(kinds) if k in DASHES and self._dashed()}
        self.legend.show_entries(entries, self.theme, lines=True, dashes=dashes)
        self._fit_axes()

    def _dashed(self) -> bool:
        return len(self.mark.ends) <= DASHED_UP_TO or self._on_paper

    def prepare_export(self, paper: Paper) -> None:
        """On paper kinds are always dashed: in grey nothing else tells them apart."""
        super().prepare_export(paper)
        self._on_paper = True

    def _pen(self, kind: int, strength: float) -> QPen:
        ink = QColor(*composition_rgb(kind, self.theme.dark))
        ink.setAlpha(round(255 * self.theme.opacity(1.0 if self._on_paper else (55 + 200 * strength) / 255)))
        pen = self.theme.pen(ink, self._width(strength), cosmetic=self.ratio)
        if kind in DASHES and self._dashed():
            pen.setDashPattern(DASHES[kind])
            pen.setCapStyle(Qt.PenCapStyle.SquareCap)  # round ones would close the gaps
        return pen

    def _width(self, strength: float) -> float:
        """px of an edge at stroke 1. On a stage and on paper, where no edge is faint, the width alone tells its strength."""
        if self.theme.stage or self._on_paper:
            return 1 + 3 * strength
        return 1 + 2 * strength if len(self.mark.ends) <= WIDE_UP_TO else 1.0

    def _buckets(self) -> np.ndarray:
        """[edge] which of the eight strengths each is drawn with."""
        return np.clip((np.asarray(self.mark.weights) * STRENGTHS).astype(int), 0, STRENGTHS - 1)

    def _fill(self) -> None:
        """One curve of separate segments for each kind and each of eight strengths, weak ones below."""
        mark = self.mark
        for curve in self._curves:
            self.box.removeItem(curve)
        self._curves = []
        drawable = np.isfinite(mark.xy).all(axis=1)[mark.ends].all(axis=1)  # [edge]
        bucket = self._buckets()
        for b in range(STRENGTHS):
            for kind in range(len(KINDS)):
                chosen = np.flatnonzero((bucket == b) & (mark.kinds == kind) & drawable)
                if not chosen.size:
                    continue
                places = self._places(mark.ends[chosen], mark.kinds[chosen]).reshape(-1, 2)  # [edge · 2, (x, y)]
                curve = Curve(antialias=len(mark.ends) <= DASHED_UP_TO)
                curve.setData(
                    np.ascontiguousarray(places[:, 0], dtype=np.float64),
                    np.ascontiguousarray(places[:, 1], dtype=np.float64),
                    connect="pairs",
                    skipFiniteCheck=True,
                    pen=self._pen(kind, (b + 0.5) / STRENGTHS),
                )
                curve.setZValue(b)
                self.box.addItem(curve, ignoreBounds=True)
                self._curves.append(curve)

    def restyle(self) -> None:
        """Colours of nodes, edges and legend."""
        if self._ready:
            self._rgb = hues_rgb(np.asarray(self.mark.hues), self.theme)
            self._fill()
            self._name_kinds()

    def _places(self, ends: np.ndarray, kinds: np.ndarray) -> np.ndarray:
        """[edge, 2, (x, y)]: kinds run side by side, so that three edges of one pair are three lines."""
        x = self.mark.xy[:, 0]
        apart = 0.007 * float(np.ptp(x[np.isfinite(x)])) if np.isfinite(x).any() else 0.0
        places = self.mark.xy[ends].astype(float)
        places[:, :, 0] += (np.asarray(kinds)[:, None] - 1) * apart
        return places

    def full_range(self) -> Range:
        """All nodes, with room for labels and badges, and on the left for the names of rows."""
        (left, right), (low, high) = span(self.mark.xy[:, 0], 0.0), span(self.mark.xy[:, 1], 0.0)
        metrics = QFontMetricsF(self.theme.font(self.theme.small))
        label = max((metrics.horizontalAdvance(t) for t in self.mark.labels), default=0.0) / 2 + self.theme.px(8)
        rows = max((metrics.horizontalAdvance(t) + self.theme.px(8) for _, t in self.mark.rows), default=0.0)
        half = metrics.height() / 2 + self.theme.px(6)
        x = _with_room(left, right, self.viewport().width(), label + rows, label)
        y = _with_room(low, high, self._height_of_plot(), half, half + (self.theme.px(BADGE) if any(self.mark.badges) else 0.0))
        return x, y

    def _along(self, part: Range) -> tuple[str, str]:
        """How many nodes are visible: positions have no unit."""
        (x0, x1), (y0, y1) = part
        x, y = self.mark.xy.T
        n_visible = int(((x >= x0) & (x <= x1) & (y >= y0) & (y <= y1)).sum())
        return f"{n_visible} of {len(x)} nodes", ""

    def _height_of_plot(self) -> float:
        """Height of the plot in px, also before a pending layout has happened."""
        return self.viewport().height() - self.legend.height_for(self._legend_room()) - self.theme.px(GRID)

    def resizeEvent(self, event: QResizeEvent) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The margins are in px: another size shows another range."""
        super().resizeEvent(event)
        if self._ready and not self._zoomed:
            self.reset_view()

    def least_width(self) -> float:
        """The names of rows and the fullest row: with names where nodes are few, as separate dots otherwise."""
        metrics = QFontMetricsF(self.theme.font(self.theme.small))
        named = max((metrics.horizontalAdvance(t) + 8 for _, t in self.mark.rows), default=0.0)
        _, counts = np.unique(self.mark.xy[:, 1], return_counts=True)
        most = int(counts.max(initial=1))
        name = max(map(metrics.horizontalAdvance, self.mark.labels), default=0.0) + 10
        each = name if most <= FEW else 2.5 * DOT * self.theme.stroke
        return named + max(each * most, LEAST_PICTURE, self.legend.least_width())

    def natural_height(self, width: int) -> int:
        """High enough to keep the layers apart."""
        return min(420, max(200, round(width * 0.55)))

    # gestures --------------------------------------------------------------------------------------------------------

    def _nodes(self) -> np.ndarray:
        """[node, 2] pixels."""
        return self.to_pixels(self.mark.xy[:, 0], self.mark.xy[:, 1])

    def _boxes(self) -> list[QRectF]:
        """A rectangle per node: its label, or a dot where labels would crowd. Computed once per view."""
        frame, view = self.frame(), self.box.viewRange()
        key, of = (frame.getRect(), tuple(map(tuple, view)), self.theme.small), (self.mark.xy, self.mark.labels)
        if key != self._boxes_key or any(a is not b for a, b in zip(of, self._boxes_arrays, strict=True)):
            self._boxes_key, self._boxes_arrays, self._node_boxes = key, of, self._place_boxes(self._nodes())
        return self._node_boxes

    def _place_boxes(self, nodes: np.ndarray) -> list[QRectF]:
        """A label where it stands clear of all other nodes and of the labels of stronger edges, which come first; else a dot."""
        metrics, dot = QFontMetricsF(self.theme.font(self.theme.small)), DOT * self.theme.stroke
        wide = np.array([metrics.horizontalAdvance(t) for t in self.mark.labels]) + self.theme.px(10)
        half = np.stack([wide, np.full(len(wide), metrics.height() + self.theme.px(4))], axis=1) / 2  # [node, (x, y)]
        extent = np.full_like(half, dot)
        for i in self._by_strength():
            away, reach = np.abs(nodes - nodes[i]), extent + half[i]
            meets = (away < reach - TOUCH).all(axis=1)
            meets[i] = False
            if not meets.any():
                extent[i] = half[i]
        self._named = (extent == half).all(axis=1)
        return [QRectF(x - a, y - b, 2 * a, 2 * b) for (x, y), (a, b) in zip(nodes.tolist(), extent.tolist(), strict=True)]

    def _by_strength(self) -> list[int]:
        """The nodes, those of the strongest edge first."""
        strongest = np.zeros(len(self.mark.xy))
        for end in np.asarray(self.mark.ends).T:
            np.maximum.at(strongest, end, self.mark.weights)
        return np.argsort(-strongest, kind="stable").tolist()

    def id_at(self, at: QPointF) -> Id | None:
        """(0, node) on a node, else (1, edge) near an edge."""
        if not len(self.mark.xy) or not self.frame().contains(at):
            return None
        for i, box in enumerate(self._boxes()):
            if box.adjusted(-3, -3, 3, 3).contains(at):
                return 0, i
        if not len(self.mark.ends):
            return None
        lines = self._lines()
        away = np.nan_to_num(segment_distance(np.array([at.x(), at.y()]), lines[:, 0], lines[:, 1]), nan=np.inf)
        nearest = int(away.argmin())
        if away[nearest] > REACH:
            return None
        # Among equally near edges the strongest, which is painted on top.
        close = np.flatnonzero(away <= away[nearest] + 1.0)
        return 1, int(close[np.asarray(self.mark.weights)[close].argmax()])

    def _lines(self, edges: np.ndarray | slice = slice(None)) -> np.ndarray:
        """[edge, 2, (x, y)] pixels of some edges."""
        places = self._places(self.mark.ends[edges], self.mark.kinds[edges])
        return self.to_pixels(places[..., 0].ravel(), places[..., 1].ravel()).reshape(-1, 2, 2)

    def readout(self, item: Id) -> str:
        """A node's label, or the ends, kind and weight of an edge."""
        kind, i = item
        if kind == 0:
            more = [texts[i] for texts in (self.mark.badges, self.mark.hints) if texts]
            return " · ".join(filter(None, (self.mark.labels[i], *more)))
        start, end = (self.mark.labels[int(n)] for n in self.mark.ends[i])
        values = self.mark.weights if self.mark.values is None else self.mark.values
        words = f"{start} → {end} {KINDS[int(self.mark.kinds[i])]} · {number(float(values[i]), self.mark.unit)}"
        return " · ".join(filter(None, (words, self.mark.edge_hints[i] if self.mark.edge_hints else "")))

    def mark_id(self, item: Id) -> Id:
        """(0, *node id) or (1, *edge id) where the mark has them."""
        ids = (self.mark.node_ids, self.mark.edge_ids)[item[0]]
        return item if ids is None else (item[0], *(int(v) for v in ids[item[1]]))

    def walk(self, item: Id | None, dx: int, dy: int) -> Id | None:
        """To the nearest node in a direction."""
        if not len(self.mark.xy):
            return None
        if item is None or item[0] != 0:
            return 0, (self.mark.chosen_nodes[0] if self.mark.chosen_nodes else 0)
        return 0, nearest_towards(self._nodes(), item[1], dx, dy)

    def show_cursor(self, item: Id | None) -> None:
        """Show the hovered node's or edge's name."""
        self._update_overlays()

    def _update_overlays(self) -> None:
        self._halos.update()
        self._over.update()

    # overlay ---------------------------------------------------------------------------------------------------------

    def _draw_halos(self, painter: QPainter) -> None:
        """A pale band behind the chosen and the hovered edge: a line drawn over it would pass for another kind and strength."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        hovered = (
            (self._hovered[1],) if self._hovered and self._hovered[0] == 1 and self._hovered[1] < len(self.mark.ends) else ()
        )
        for edges, name in ((hovered, "text"), (self.mark.chosen_edges, "accent")):
            some = np.array(edges, dtype=int)
            widths = [self._width((b + 0.5) / STRENGTHS) for b in self._buckets()[some].tolist()]
            for (a, b), width in zip(self._lines(some).tolist(), widths, strict=True):
                if all(map(math.isfinite, (*a, *b))):
                    painter.setPen(self.theme.pen(self.theme.colour(name, PALE), width + 2 * HALO))
                    painter.drawLine(QPointF(*a), QPointF(*b))

    def _draw_over(self, painter: QPainter) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_edge_badges(painter)
        self._draw_nodes(painter)

    def _draw_edge_badges(self, painter: QPainter) -> None:
        """On the middle of their lines, below the nodes."""
        badged = [i for i, text in enumerate(self.mark.edge_badges) if text]
        if not badged:
            return
        painter.setFont(self.theme.font(self.theme.small))
        middles = self._lines(np.array(badged, dtype=int)).mean(axis=1)
        for i, (x, y) in zip(badged, middles.tolist(), strict=True):
            if x == x:  # else an end has no coordinates
                self._draw_badge(painter, [QPointF(x, y)], self.mark.edge_badges[i])

    def _draw_nodes(self, painter: QPainter) -> None:
        boxes = self._boxes()
        self._draw_rows(painter)
        self._draw_brackets(painter, boxes)
        painter.setFont(self.theme.font(self.theme.small))
        chosen, round_ = set(self.mark.chosen_nodes), self.theme.px(4)
        hovered = self._hovered[1] if self._hovered and self._hovered[0] == 0 else -1
        ground = np.array(self.theme.colour("background").getRgb()[:3])
        # A tint with a border in the head's hue: a hundred full hues would drown the edges.
        tints = np.where(self._named[:, None], np.round(self._rgb * 0.2 + ground * 0.8), self._rgb).astype(int).tolist()
        taken = [box for box in boxes if box.x() == box.x()]
        for i, box in enumerate(boxes):
            if box.x() != box.x():
                continue  # a node without coordinates
            labelled = self._named[i]
            ring = (
                self.theme.colour("accent" if i in chosen else "text")
                if i in chosen or i == hovered
                else QColor(*self._rgb[i].tolist())
            )
            painter.setPen(self.theme.pen(ring, 2.5 if i in chosen else 1.5))
            painter.setBrush(QColor(*tints[i]))
            painter.drawRoundedRect(box, round_, round_)
            if labelled:
                painter.setPen(self.theme.colour("text"))
                painter.drawText(box, Qt.AlignmentFlag.AlignCenter, self.mark.labels[i])
            if self.mark.badges and self.mark.badges[i]:
                apart = box.height() / 2 + self.theme.px(BADGE) / 2 + 1
                beside = [box.center() - QPointF(0, apart), box.center() + QPointF(0, apart)]
                cross = self.theme.px(CROSS) if i in self.mark.struck else 0  # at the corner, beside the badge
                self._draw_badge(painter, beside, self.mark.badges[i], box.right() - cross if cross else math.inf, taken)
            if not labelled and (i in chosen or i == hovered):
                painter.setPen(self.theme.colour("accent" if i in chosen else "text"))
                painter.drawText(QPointF(box.right() + 4, box.bottom()), self.mark.labels[i])
        for i in self.mark.struck:
            if (box := boxes[i]).x() == box.x():
                side = self.theme.px(CROSS)
                paint_cross(painter, QRectF(box.right() - side, box.top() - side, 2 * side, 2 * side), self.theme)

    def _draw_brackets(self, painter: QPainter, boxes: list[QRectF]) -> None:
        """Below the nodes that belong together, its ends at the outer ones."""
        painter.setPen(self.theme.pen("muted"))
        end = self.theme.px(BRACKET)
        for nodes in self.mark.brackets:
            of = sorted((boxes[i] for i in nodes if boxes[i].x() == boxes[i].x()), key=QRectF.x)
            if len(of) < 2:
                continue
            left, right, low = of[0].center().x(), of[-1].center().x(), max(box.bottom() for box in of) + end
            corners = [(left, of[0].bottom()), (left, low), (right, low), (right, of[-1].bottom())]
            painter.drawPolyline([QPointF(*corner) for corner in corners])

    def _draw_rows(self, painter: QPainter) -> None:
        """Names of rows at the left edge."""
        painter.setFont(self.theme.font(self.theme.small))
        painter.setPen(self.theme.colour("muted"))
        left = self.frame().left()
        heights = np.array([y for y, _ in self.mark.rows])
        places = self.to_pixels(np.zeros(len(heights)), heights)[:, 1].tolist() if len(heights) else []
        half = QFontMetricsF(painter.font()).height()
        for (_, text), y in zip(self.mark.rows, places, strict=True):
            painter.drawText(QRectF(left, y - half, self.frame().width(), 2 * half), Qt.AlignmentFlag.AlignVCenter, text)

    def _draw_badge(
        self, painter: QPainter, centres: list[QPointF], text: str, most: float = math.inf, taken: list[QRectF] | None = None
    ) -> None:
        """Round the first of `centres` that is free, or to the left of it where it would reach beyond `most`; nowhere if none is.

        `taken`: places that are not free, to which it adds its own.
        """
        width, height = QFontMetricsF(painter.font()).horizontalAdvance(text) + self.theme.px(6), self.theme.px(BADGE) - 2
        places = [QRectF(min(c.x() - width / 2, most - width), c.y() - height / 2, width, height) for c in centres]
        less = TOUCH, TOUCH, -TOUCH, -TOUCH
        free = (one for one in places if not any(one.adjusted(*less).intersects(other) for other in taken or ()))
        if (place := next(free, None)) is None:
            return
        if taken is not None:
            taken.append(place)
        painter.fillRect(place, self.theme.colour("background", 0.85))
        painter.setPen(self.theme.colour("muted"))
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter, text)


def _with_room(low: float, high: float, length: float, before: float, after: float) -> tuple[float, float]:
    """The range `low` to `high` with `before` and `after` px added, on `length` px; at most a third on either side."""
    before, after = (min(room, length / 3) for room in (before, after))
    scale = (high - low) / max(length - before - after, 1.0)
    return low - before * scale, high + after * scale


def segment_distance(point: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """[m] distance of `point` [2] from the segments `start`, `end` [m, 2]."""
    along = end - start
    length = np.maximum((along**2).sum(axis=1), 1e-12)
    part = np.clip(((point - start) * along).sum(axis=1) / length, 0, 1)[:, None]
    return np.hypot(*(point - (start + part * along)).T)
