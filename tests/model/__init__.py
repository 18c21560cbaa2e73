"""An executable model of what tfadaptcp promises, in plain Python."""
