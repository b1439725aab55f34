"""The kinds of numbers a program computes with, and how their scales are chosen."""
