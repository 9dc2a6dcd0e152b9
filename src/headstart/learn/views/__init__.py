"""The answers of the simulator on a terminal."""
