"""Namespaces that rules are written against, where a library's own has faults that they meet."""
