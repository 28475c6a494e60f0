"""Faults that are injected: each costs what it must, and nothing is wrong, lost, repeated or waits for ever."""
