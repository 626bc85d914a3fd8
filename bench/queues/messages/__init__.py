"""One module a queue: how its messages are sent, how they are taken and acknowledged, how many it still holds."""
