"""What the broker has promised so far, and the checks of it after every step and every restart."""
