"""What changes when parts are ablated, patched, or left as the only ones: ablation, patching, circuit faithfulness."""
