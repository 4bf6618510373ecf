"""Interventions in the window: which ones the context menu offers for the selection, and how they are named.

An offer holds a State: the session after the intervention. If nothing is pinned, its reference is the same session without it
(`State.reference`), so that every panel can show before, after and the difference at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from circuitlab.analysis.interventions.alignment import alignment_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import HEADLESS, Intervention, Op, Site, SiteName
from circuitlab.model.subject import Head, Target
from circuitlab.session.state import State

CUT = "✕"  # the sign of an intervention, on heads and before its words
READ_BY: dict[str, SiteName] = {"Q": "q", "K": "k", "V": "v"}
_OPS: dict[Op, str] = {
    "zero": "zero",
    "mean": "mean in place of",
    "scale": "scale",
    "set": "set",
    "freeze": "freeze",
    "patch": "patch",
}


@dataclass(frozen=True)
class Offer:
    """An entry of a context menu: its text, and the State it leads to."""

    title: str
    state: State


OfferMaker = Callable[[State, ModelConfig], "tuple[Offer, ...]"]
_PANEL_OFFERS: list[OfferMaker] = []


def register_offer(maker: OfferMaker) -> OfferMaker:
    """Add a panel's own offers for the selection; they follow the interventions in the menu."""
    _PANEL_OFFERS.append(maker)
    return maker


def ablation(head: Head) -> Intervention:
    """Zero ablation of a head: its z is 0, and with it its output to the residual stream."""
    return Intervention("zero", Site("z", head.layer, (head.head,)))


def with_edits(state: State, *edits: Intervention) -> State:
    """The state with these interventions added, switched on."""
    others = tuple((e, on) for e, on in state.edits if e not in edits)
    return replace(state, edits=(*others, *((e, True) for e in edits)))


def without_edit(state: State, edit: Intervention) -> State:
    """The state without one intervention."""
    return replace(state, edits=tuple((e, on) for e, on in state.edits if e != edit))


def switched(state: State, edit: Intervention, on: bool) -> State:
    """The state with one intervention switched on or off."""
    return replace(state, edits=tuple((e, on if e == edit else was) for e, was in state.edits))


def place(site: Site) -> str:
    """A site in words: `"z of L1H1 at 12"`."""
    heads = " ".join(str(Head(site.layer, h)) for h in site.heads)
    who = heads or (f"layer {site.layer}" if site.name in ("resid_pre", "mlp_out") else f"all heads of layer {site.layer}")
    positions = " at " + ", ".join(map(str, site.positions)) if site.positions else ""
    sources = " from " + ", ".join(map(str, site.sources)) if site.sources else ""
    return f"{site.name} of {who}{positions}{sources}"


def words(edit: Intervention) -> str:
    """An intervention in one line: the operation and its site."""
    what = _OPS[edit.op]
    by = f" × {edit.value[0]:g}" if edit.op == "scale" else ""
    other = " (another prompt's)" if edit.source else ""
    path = "" if edit.path_from is None else f", along the path from {place(edit.path_from)} only"
    return f"{what} {place(edit.site)}{by}{other}{path}"


_DONE: dict[Op, str] = {"zero": "zeroed", "mean": "mean", "set": "set", "freeze": "frozen", "patch": "patched"}


def _who(edit: Intervention) -> str:
    """The site of an intervention in a few letters."""
    site, sender = edit.site, edit.path_from
    if site.heads:
        name = str(Head(site.layer, site.heads[0])) + (f" +{len(site.heads) - 1}" if len(site.heads) > 1 else "")
    else:
        name = {"resid_pre": f"stream {site.layer}", "mlp_out": f"MLP {site.layer}"}.get(site.name, f"layer {site.layer}")
    if sender is None:
        return name
    return f"{Head(sender.layer, sender.heads[0]) if sender.heads else f'MLP {sender.layer}'} → {name}"


def short_words(edits: Sequence[Intervention], room: bool = True) -> str:
    """The interventions in force, as short as possible: `"L0H1 zeroed"`, `"L0H1 zeroed +2"`; "" for none.

    Without `room` the operation is left out, not the site: `"L0H1 +2"`.
    """
    if not edits:
        return ""
    first = edits[0]
    done = f"× {first.value[0]:g}" if first.op == "scale" else _DONE[first.op]
    more = f"+{len(edits) - 1}" if len(edits) > 1 else ""
    return " ".join(filter(None, (_who(first), done if room else "", more)))


def heads_of(edit: Intervention, config: ModelConfig) -> tuple[Head, ...]:
    """The heads inside which an intervention acts; all heads of the group if it acts on their shared key or value."""
    site = edit.site
    if site.name in HEADLESS:
        return ()
    if site.name in ("k", "v"):
        chosen = [h for h in range(config.n_heads) if not site.heads or config.kv_head(h) in site.heads]
    else:
        chosen = list(site.heads or range(config.n_heads))
    return tuple(Head(site.layer, h) for h in chosen)


def offers(state: State, config: ModelConfig, token_text: Callable[[int], str] = str) -> tuple[Offer, ...]:
    """The context menu's offers for this state's selection."""
    heads = tuple(h for h in state.selection.heads if h.layer < config.n_layers and h.head < config.n_heads)
    entries = [*_of_edge(state, config), *_of_heads(state, heads), *_of_cell(state, heads), *_of_pin(state, heads)]
    if not config.attention_only and heads:
        layer = heads[0].layer
        cut = Intervention("zero", Site("mlp_out", layer))
        entries.append(Offer(f"Zero the MLP of layer {layer}", with_edits(state, cut)))
    entries += [one for maker in _PANEL_OFFERS for one in maker(state, config)]
    return (*entries, *_of_token(state, token_text))


def _named(heads: tuple[Head, ...]) -> str:
    return " ".join(map(str, heads[:4])) + (f" and {len(heads) - 4} more" if len(heads) > 4 else "")


def _of_heads(state: State, heads: tuple[Head, ...]) -> list[Offer]:
    if not heads:
        return []
    names = _named(heads)
    at = lambda op, name: with_edits(state, *(Intervention(op, Site(name, h.layer, (h.head,))) for h in heads))
    entries = [
        Offer(f"Zero {names}", at("zero", "z")),
        Offer(f"Replace {names} by the mean over this prompt", at("mean", "z")),
        Offer(f"Freeze the pattern of {names}", at("freeze", "pattern")),
    ]
    position = state.selection.destination
    if position is not None:
        cuts = (Intervention("zero", Site("z", h.layer, (h.head,), (position,))) for h in heads)
        entries.append(Offer(f"Zero {names} at position {position}", with_edits(state, *cuts)))
    return entries


def _of_cell(state: State, heads: tuple[Head, ...]) -> list[Offer]:
    dest, src = state.selection.destination, state.selection.source
    if dest is None or src is None or src > dest or not heads:
        return []
    head = heads[0]
    cut = Intervention("zero", Site("pattern", head.layer, (head.head,), (dest,), (src,)))
    return [Offer(f"Cut the attention of {head} from {dest} to {src}", with_edits(state, cut))]


def _of_edge(state: State, config: ModelConfig) -> list[Offer]:
    edge, kind = state.selection.edge, state.selection.edge_kind
    if edge is None or config.norm_placement != "pre":
        return []
    src, dst = edge
    head = dst.head if kind == "Q" else config.kv_head(dst.head)
    sender = Site("result", src.layer, (src.head,))
    cut = Intervention("zero", Site(READ_BY[kind], dst.layer, (head,)), path_from=sender)
    shared = f" (and its group's: they share a {'key' if kind == 'K' else 'value'})" if kind != "Q" and config.group > 1 else ""
    return [Offer(f"Cut the path {src} → {dst} through {kind}{shared}", with_edits(state, cut))]


def _of_pin(state: State, heads: tuple[Head, ...]) -> list[Offer]:
    """Patches from the reference, if it is another text on the same model."""
    pin = state.reference
    if pin is None or pin.subject.model != state.model or pin.subject.tokens == state.tokens or not pin.subject.tokens:
        return []
    source = pin.subject.tokens
    align = tuple(int(a) for a in alignment_of(state.tokens, source).align)
    patch = lambda site: Intervention("patch", site, source=source, align=align)
    entries = []
    if heads:
        cuts = (patch(Site("z", h.layer, (h.head,))) for h in heads)
        entries.append(Offer(f"Patch {_named(heads)} from ‘{pin.label}’", with_edits(state, *cuts)))
    position = state.selection.destination
    if position is not None and heads and align[position] >= 0:
        layer = heads[0].layer
        cut = patch(Site("resid_pre", layer, (), (position,)))
        title = f"Patch the stream before layer {layer} at {position} from ‘{pin.label}’"
        entries.append(Offer(title, with_edits(state, cut)))
    return entries


def _of_token(state: State, token_text: Callable[[int], str]) -> list[Offer]:
    """Targets for attributions, patching, lenses and sweeps."""
    token, target = state.selection.token, state.selection.target
    entries = []
    if token is not None and target.tokens != (token,):
        entries.append(Offer(f"Measure ‘{token_text(token)}’", state.select(target=Target((token,)))))
    if token is not None and len(target.tokens) == 1 and target.tokens[0] != token:
        first = target.tokens[0]
        title = f"Measure ‘{token_text(first)}’ − ‘{token_text(token)}’"
        entries.append(Offer(title, state.select(target=Target((first, token)))))
    if target != Target():
        entries.append(Offer("Measure the token that follows", state.select(target=Target())))
    return entries
