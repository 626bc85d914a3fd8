"""The simulated clients and administrators: each actor takes one kind of step against the broker."""
