"""SASL on the broker's side: the mechanisms, one file each, and the connection that asks for a login."""
