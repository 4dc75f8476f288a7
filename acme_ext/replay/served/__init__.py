"""Embedded tables for other processes, through calls over TCP."""
