"""The words of a step as text: the TOML block of a lesson, and the same keys in the JSON of a session file. All may be left out.

    model = "attn-only-0l"          # as on the command line; `construct:…` too; or a name of the session's table of models. A new
                                    #   model drops heads, cut, edits and edge
    checkpoint = 3500               # the checkpoint nearest to this training step; "final" (the default with a new model)
    text = "…"                      # the prompt. A new prompt drops destination and source
    tokens = [0, 5, 9]              #   or ids, as they are; text beside them is only shown
    random = { block = 25, repeats = 2, seed = 0 }    # or repeated random tokens of the model's vocabulary, after its BOS
    bos = false                     # whether the text's ids begin with BOS; by default as the model was trained
    front = "<|endoftext|>"         #   or another special token that stands in front in its place; "" none
    special = false                 # whether spellings of special tokens in the text are read as these tokens; true by default
    draft = "…"                     # the editor's content that the model could not take, beside the prompt
    heads = ["L1H1"]                # the first one leads; "best prefix_matching": the head with the largest such score of
                                    #   `head_scores`, computed when the step is shown; "best final prefix_matching": that of the
                                    #   final weights, at whatever checkpoint. heads = "best …" is a list of one
    cut = ["L0H1"]                  # heads to zero-ablate, "best …" too; [] none. Without a pin the reference is the uncut state
    edits = [{ op = "zero", site = "pattern", layer = 1, heads = [0], positions = [9], sources = [4] }]
                                    #   or interventions of every kind, with value, source, align, from (the path's sender) and
                                    #   on = false where one is switched off
    conventions = { fold_norm = false, centre = false, dtype = "float64" }    # those that are not the default; {} all default
    edge = ["L0H3", "L1H6"]         # a composition, source and destination head, "best …" too; edge_kind = "Q" "K" "V". Its
                                    #   destination leads, then the `heads` of the same step; new heads deselect the edge; [] none
    destination = 12                # a position, negative from the end; or a text: its last token where it occurs last; [] none
    source = { text = " cat", occurrence = 1 }        # where it occurs first; -1 last (destination and source alike)
    locked = false                  # the pointer moves the destination; by default it stays where a step puts it
    token = " the"                  # the selected token of the vocabulary, or its id; "" none
    target = [" cat", " dog"]       # what attributions measure: one token, or the first minus the second; ids too; [] the next
                                    #   token; { direction = [0.1, …] } a direction of the normalised final residual stream
    pin = { model = "…" }           # the reference: this same state with another subject or selection (the words above), and
                                    #   `label`, its name; a list: several pins, the first is the reference
    pin = "before"                  #   or the state that the step before left; "none" removes the pins
    compare = "difference"          # now, reference, difference (the default with a new pin)
    show = ["bigram", "predictions"]  # exactly these panels are shown beside the text; the last one is highlighted
    arrange = "Explore"             # or a whole arrangement of the window, with the panels of `show` in front
    alone = true                    # the panel shown last has the whole window
    stage = ["bigram"]              # those that an audience sees first, the others at a key; by default all of them
    zoom = { "attention/attention" = [0, 4, 12, 18] } # the visible part of a figure: left, bottom, right, top in its own units;
                                    #   of a table [first, last] row, or { rows, sort, filter } (`story/zoom`)
    play = [0, "final"]             # a film: the checkpoints between these training steps, one after the other
    play = { offset = [1, 8] }      #   or a parameter of the constructed model from one value to another; [1, 20, 25] in 25
    [view.attention]                # controls of a panel by name, as its View has them (`circuitlab panels`); without any,
    show = "scores"                 #   each is the default again

`read_setup(table_of(setup))` is `setup` again.
"""

from circuitlab.story.typed_words import Refuse
from circuitlab.story.words_reading import SUBJECT_KEYS, read_other, read_setup
from circuitlab.story.words_writing import table_of

__all__ = ["SUBJECT_KEYS", "Refuse", "read_other", "read_setup", "table_of"]
