"""Headrace as the back end of other task frameworks, one module for each.

A framework keeps its own API, its own messages and its own workers; an adapter gives it a queue: a share group on
topics. Nothing here is imported unless a program names the module, and each module needs the extra of its name.
"""
