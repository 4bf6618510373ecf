"""The fault walk: every writer and every fault at each of its system calls. Nothing is lost that was said to be kept, and no half
file counts as whole.
"""
