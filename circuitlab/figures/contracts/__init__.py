"""What every panel is made with: the contract, comparison, memo, shared axes and colours."""
