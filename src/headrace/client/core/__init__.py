"""The share consumer's rules: no sockets, no event loop, no clock. Time and answers come in, requests come out."""
