"""Who is talking to the broker, and what they may do."""
