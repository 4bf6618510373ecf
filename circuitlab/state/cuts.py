"""Interventions in the window: which ones the context menu offers for the selection, and how they are named.

An offer holds a State: the session after the intervention, or, where that is in force already, after it is taken back. If nothing
is pinned, the reference is the same session without interventions (`State.reference`), so that every panel can show before, after
and the difference at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from circuitlab.analysis.interventions.alignment import alignment_of
from circuitlab.counting import number, number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import HEADLESS, Intervention, Op, Site, SiteName
from circuitlab.model.subject import Head, Target
from circuitlab.state.state import State

MOST_EDITS = 2  # that are worded one by one
MOST_NAMES = 8  # heads that are named in one
CUT = "✕"  # the sign of an intervention, on heads and before its words
READ_BY: dict[str, SiteName] = {"Q": "q", "K": "k", "V": "v"}
_OPS: dict[Op, str] = {
    "zero": "zero",
    "mean": "mean in place of",
    "scale": "scale",
    "set": "set",
    "freeze": "freeze",
    "patch": "patch",
    "project": "keep one direction of",
    "project_out": "take one direction out of",
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


SHARED = ("k", "v")  # sites whose heads are counted by groups that share them


def ablation(head: Head) -> Intervention:
    """Zero ablation of a head: its z is 0, and with it its output to the residual stream."""
    return Intervention("zero", Site("z", head.layer, (head.head,)))


def with_edits(state: State, *edits: Intervention) -> State:
    """The state with these interventions added, switched on, and seen: where the reference was shown, now is."""
    others = tuple((e, on) for e, on in state.edits if e not in edits)
    return seen(replace(state, edits=(*others, *((e, True) for e in edits))))


def seen(state: State) -> State:
    """The state with now in sight: the reference, which interventions leave as it is, would show that nothing has happened."""
    return replace(state, compare="now") if state.compare == "reference" else state


def without_edit(state: State, *edits: Intervention) -> State:
    """The state without these interventions."""
    return replace(state, edits=tuple((e, on) for e, on in state.edits if e not in edits))


def in_force(state: State, edits: Sequence[Intervention]) -> bool:
    """Whether all of these interventions are made and switched on."""
    return all((edit, True) in state.edits for edit in edits)


def switched(state: State, edit: Intervention, on: bool) -> State:
    """The state with one intervention switched on or off; one that is switched on is seen, as with `with_edits`."""
    changed = replace(state, edits=tuple((e, on if e == edit else was) for e, was in state.edits))
    return seen(changed) if on else changed


def place(site: Site) -> str:
    """A site in words: `"z of L1H1 at 12"`; of keys and values, which a group of heads may share, `"k 1 of layer 17"`."""
    if site.name in SHARED and site.heads:
        return f"{site.name} {', '.join(map(str, site.heads))} of layer {site.layer}{_where(site)}"
    heads = " ".join(str(Head(site.layer, h)) for h in site.heads)
    who = heads or (f"layer {site.layer}" if site.name in ("resid_pre", "mlp_out") else f"all heads of layer {site.layer}")
    return f"{site.name} of {who}{_where(site)}"


def _where(site: Site) -> str:
    positions = " at " + ", ".join(map(str, site.positions)) if site.positions else ""
    sources = " from " + ", ".join(map(str, site.sources)) if site.sources else ""
    return f"{positions}{sources}"


def words(edit: Intervention) -> str:
    """An intervention in one line: the operation and its site."""
    what = _OPS[edit.op]
    by = f" × {number(edit.value[0], 'g')}" if edit.op == "scale" else ""
    other = " (another prompt's)" if edit.source else ""
    path = "" if edit.path_from is None else f", along the path from {place(edit.path_from)} only"
    return f"{what} {place(edit.site)}{by}{other}{path}"


_DONE: dict[Op, str] = {
    "zero": "zeroed",
    "mean": "mean-ablated",
    "set": "set",
    "freeze": "frozen",
    "patch": "patched",
    "project": "one direction kept",
    "project_out": "one direction taken out",
}


def _who(edit: Intervention) -> str:
    """The site of an intervention in a few letters."""
    site, sender = edit.site, edit.path_from
    if site.heads:
        first = site.heads[0]
        name = f"L{site.layer} {site.name}{first}" if site.name in SHARED else str(Head(site.layer, first))
        name += f" +{len(site.heads) - 1}" if len(site.heads) > 1 else ""
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
    done = f"× {number(first.value[0], 'g')}" if first.op == "scale" else _DONE[first.op]
    more = f"+{len(edits) - 1}" if len(edits) > 1 else ""
    return " ".join(filter(None, (_who(first), done if room else "", more)))


def is_short(edit: Intervention) -> bool:
    """Whether `short_words` say all of an intervention: the output of one head, or of an MLP, is zeroed at every position.

    z W_O is zero where z is: which of the two is set makes no difference.
    """
    site = edit.site
    whole = not (site.positions or site.sources or edit.path_from)
    return edit.op == "zero" and whole and (site.name == "mlp_out" or (site.name in ("z", "result") and len(site.heads) == 1))


def edit_words(edits: Sequence[Intervention]) -> list[str]:
    """Interventions in words, one by one while they are few; what `short_words` say all of, as titles have it.

    Of more that all zero an output, their names in one: `"L0H1 L0H2 L1H1 zeroed"`; of others the first and how many follow.
    """
    if len(edits) <= MOST_EDITS or not all(map(is_short, edits)):
        named = [short_words((e,)) if is_short(e) else words(e) for e in edits[:MOST_EDITS]]
        return [*named, *([number_of(len(edits) - MOST_EDITS, "more intervention")] if edits[MOST_EDITS:] else [])]
    more = f" +{len(edits) - MOST_NAMES}" if len(edits) > MOST_NAMES else ""
    return [f"{' '.join(map(_who, edits[:MOST_NAMES]))}{more} zeroed"]


def heads_of(edit: Intervention, config: ModelConfig) -> tuple[Head, ...]:
    """The heads inside which an intervention acts; all heads of the group if it acts on their shared key or value."""
    site = edit.site
    if site.name in HEADLESS:
        return ()
    if site.name in SHARED:
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
        entries.append(_offer(state, f"Zero the MLP of layer {layer}", f"Restore the MLP of layer {layer}", cut))
    entries += [one for maker in _PANEL_OFFERS for one in maker(state, config)]
    return (*entries, *_of_token(state, token_text))


def _named(heads: tuple[Head, ...]) -> str:
    return " ".join(map(str, heads[:4])) + (f" and {len(heads) - 4} more" if len(heads) > 4 else "")


def _offer(state: State, title: str, restoring: str, *edits: Intervention) -> Offer:
    """The offer of interventions, under `title`; where they are in force already that of taking them back, under `restoring`."""
    if in_force(state, edits):
        return Offer(restoring, without_edit(state, *edits))
    return Offer(title, with_edits(state, *edits))


def _of_heads(state: State, heads: tuple[Head, ...]) -> list[Offer]:
    if not heads:
        return []
    names = _named(heads)
    at = lambda op, name: [Intervention(op, Site(name, h.layer, (h.head,))) for h in heads]
    mean = f"{names} by the mean over this prompt"
    pattern = f"the pattern of {names}"
    entries = [
        _offer(state, f"Zero {names}", f"Restore {names}", *map(ablation, heads)),
        _offer(state, f"Replace {mean}", f"No longer replace {mean}", *at("mean", "z")),
        _offer(state, f"Freeze {pattern}", f"No longer freeze {pattern}", *at("freeze", "pattern")),
    ]
    position = state.selection.destination
    if position is not None:
        cuts = (Intervention("zero", Site("z", h.layer, (h.head,), (position,))) for h in heads)
        where = f"{names} at position {position}"
        entries.append(_offer(state, f"Zero {where}", f"Restore {where}", *cuts))
    return entries


def _of_cell(state: State, heads: tuple[Head, ...]) -> list[Offer]:
    dest, src = state.selection.destination, state.selection.source
    if dest is None or src is None or src > dest or not heads:
        return []
    head = heads[0]
    cut = Intervention("zero", Site("pattern", head.layer, (head.head,), (dest,), (src,)))
    what = f"the attention of {head} from {dest} to {src}"
    return [_offer(state, f"Cut {what}", f"Restore {what}", cut)]


def _of_edge(state: State, config: ModelConfig) -> list[Offer]:
    edge, kind = state.selection.edge, state.selection.edge_kind
    if edge is None or config.norm_placement != "pre":
        return []
    src, dst = edge
    head = dst.head if kind == "Q" else config.kv_head(dst.head)
    sender = Site("result", src.layer, (src.head,))
    cut = Intervention("zero", Site(READ_BY[kind], dst.layer, (head,)), path_from=sender)
    shared = f" (and its group's: they share a {'key' if kind == 'K' else 'value'})" if kind != "Q" and config.group > 1 else ""
    what = f"the path {src} → {dst} through {kind}{shared}"
    return [_offer(state, f"Cut {what}", f"Restore {what}", cut)]


def _of_pin(state: State, heads: tuple[Head, ...]) -> list[Offer]:
    """Patches from the reference, if it is another text on the same model."""
    pin = state.reference
    if pin is None or pin.subject.model != state.model or pin.subject.tokens == state.tokens or not pin.subject.tokens:
        return []
    source = pin.subject.tokens
    align = tuple(int(a) for a in alignment_of(state.tokens, source).align)
    patch = lambda site: Intervention("patch", site, source=source, align=align)
    offer = lambda what, *cuts: _offer(state, f"Patch {what}", f"No longer patch {what}", *cuts)
    entries = []
    if heads:
        cuts = (patch(Site("z", h.layer, (h.head,))) for h in heads)
        entries.append(offer(f"{_named(heads)} from ‘{pin.label}’", *cuts))
    position = state.selection.destination
    if position is not None and heads and align[position] >= 0:
        layer = heads[0].layer
        cut = patch(Site("resid_pre", layer, (), (position,)))
        entries.append(offer(f"the stream before layer {layer} at {position} from ‘{pin.label}’", cut))
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
